package main

import (
	"fmt"
	"io"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"

	"runnerd/redact"
	"runnerd/systemd"
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

// newLogger writes one line per fact: into systemd's journal as fields where w is
// the journal's stream, in console form on a terminal, as JSON otherwise.
// Everything passes hide, so that a known secret never reaches a log.
func newLogger(s Settings, w io.Writer, hide *redact.Set, getenv func(string) string) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(s.LogLevel)
	if err != nil {
		return nil, fmt.Errorf("RUNNERD_LOG_LEVEL is %q; expected debug, info, warn or error", s.LogLevel)
	}
	if f, ok := w.(*os.File); ok && s.LogFormat == "auto" && systemd.ToJournal(getenv, f) {
		if journal, err := systemd.OpenJournal(systemd.JournalSocket); err == nil {
			return zap.New(journal.Core(level, hide.Text)), nil
		} // without the socket, lines on standard error reach the journal too
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
