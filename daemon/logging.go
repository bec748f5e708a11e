package daemon

import (
	"fmt"
	"io"
	"os"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"

	"runnerd/redact"
	"runnerd/systemd"
	"runnerd/text"
)

// redacting takes out of each write, which zap makes one a line, what it must not
// show: secrets, and what a terminal could take for more than text.
type redacting struct {
	w    io.Writer
	hide *redact.Set
	fit  func([]byte) []byte
}

// fitLine keeps the tabs between a line's parts.
func fitLine(line []byte) []byte {
	parts := strings.Split(strings.TrimSuffix(string(line), "\n"), "\t")
	for i, p := range parts {
		parts[i] = text.Field(p)
	}
	return []byte(strings.Join(parts, "\t") + "\n")
}

func (r redacting) Write(line []byte) (int, error) {
	if _, err := r.w.Write(r.fit(r.hide.Bytes(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

// newLogger writes one line per fact: into systemd's journal as fields where w is
// the journal's stream, in console form on a terminal, as JSON otherwise.
// Everything passes hide, so that a known secret never reaches a log.
func newLogger(o Options, hide *redact.Set) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(o.LogLevel)
	if err != nil {
		return nil, fmt.Errorf("RUNNERD_LOG_LEVEL is %q; expected debug, info, warn or error", o.LogLevel)
	}
	if f, ok := o.Log.(*os.File); ok && o.LogFormat == "auto" && systemd.ToJournal(o.Getenv, f) {
		if journal, err := systemd.OpenJournal(systemd.JournalSocket); err == nil {
			return zap.New(journal.Core(level, func(s string) string { return text.Field(hide.Text(s)) })), nil
		} // without the socket, lines on standard error reach the journal too
	}
	var enc zapcore.Encoder
	fit := fitLine
	switch format := logFormat(o.LogFormat, o.Log); format {
	case "console":
		c := zap.NewDevelopmentEncoderConfig()
		c.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		c.CallerKey = ""
		enc = zapcore.NewConsoleEncoder(c)
	case "json":
		c := zap.NewProductionEncoderConfig()
		c.TimeKey, c.EncodeTime, c.CallerKey = "time", zapcore.RFC3339NanoTimeEncoder, ""
		c.EncodeDuration = zapcore.StringDurationEncoder
		enc, fit = zapcore.NewJSONEncoder(c), text.JSON
	default:
		return nil, fmt.Errorf("RUNNERD_LOG_FORMAT is %q; expected auto, console or json", format)
	}
	return zap.New(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(redacting{o.Log, hide, fit})), level)), nil
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
