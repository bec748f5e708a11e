package main

import (
	"fmt"
	"io"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"

	"runnerd/redact"
)

// redacting redacts each write; zap makes one a line.
type redacting struct {
	w    io.Writer
	hide *redact.Set
}

func (r redacting) Write(line []byte) (int, error) {
	if _, err := r.w.Write(r.hide.Bytes(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// newLogger writes one line per fact: console form on a terminal, JSON
// otherwise. Every line passes hide, so that a known secret never reaches a log.
func newLogger(s Settings, w io.Writer, hide *redact.Set) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(s.LogLevel)
	if err != nil {
		return nil, fmt.Errorf("RUNNERD_LOG_LEVEL is %q; expected debug, info, warn or error", s.LogLevel)
	}
	var enc zapcore.Encoder
	switch format := logFormat(s.LogFormat, w); format {
	case "console":
		c := zap.NewDevelopmentEncoderConfig()
		c.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		c.CallerKey = ""
		enc = zapcore.NewConsoleEncoder(c)
	case "json":
		c := zap.NewProductionEncoderConfig()
		c.TimeKey, c.EncodeTime, c.CallerKey = "time", zapcore.RFC3339NanoTimeEncoder, ""
		c.EncodeDuration = zapcore.StringDurationEncoder
		enc = zapcore.NewJSONEncoder(c)
	default:
		return nil, fmt.Errorf("RUNNERD_LOG_FORMAT is %q; expected auto, console or json", format)
	}
	return zap.New(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(redacting{w, hide})), level)), nil
}

func logFormat(format string, w io.Writer) string {
	if format != "auto" {
		return format
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return "console"
	}
	return "json"
}
