package systemd

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
)

// JournalSocket is where the journal listens.
const JournalSocket = "/run/systemd/journal/socket"

// A journal entry is one datagram, so its size is bounded: a longer value is cut
// and what no longer fits is left out.
const (
	maxField = 16 << 10
	maxEntry = 96 << 10
)

// Journal writes log entries to systemd's journal as fields, so that
// `journalctl RUNNERD_TASK=brief` finds what it should.
type Journal struct {
	conn *net.UnixConn
	to   *net.UnixAddr
}

// OpenJournal opens a socket for writing to the journal at path.
func OpenJournal(path string) (*Journal, error) {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return &Journal{conn: conn, to: &net.UnixAddr{Name: path, Net: "unixgram"}}, nil
}

// Close closes the socket; cores of the journal fail from then on.
func (j *Journal) Close() error { return j.conn.Close() }

// Core returns a zap core that writes to the journal. The message is followed by
// the fields as text, for people; each field is also a journal field of its own,
// its key in capitals after RUNNERD_. redact, if not nil, is applied to the
// message and to each value.
func (j *Journal) Core(level zapcore.LevelEnabler, redact func(string) string) zapcore.Core {
	if redact == nil {
		redact = func(s string) string { return s }
	}
	return &journalCore{LevelEnabler: level, journal: j, redact: redact}
}

type journalCore struct {
	zapcore.LevelEnabler
	journal *Journal
	redact  func(string) string
	fields  []zapcore.Field
}

func (c *journalCore) With(fields []zapcore.Field) zapcore.Core {
	return &journalCore{c.LevelEnabler, c.journal, c.redact, append(slices.Clip(c.fields), fields...)}
}

func (c *journalCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *journalCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	data := encode(e, append(slices.Clip(c.fields), fields...), c.redact)
	if err := c.journal.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("write to the journal: %w", err)
	}
	if _, err := c.journal.conn.WriteToUnix(data, c.journal.to); err != nil {
		return fmt.Errorf("write to the journal: %w", err)
	}
	return nil
}

// Sync does nothing: each entry is sent when it is written.
func (c *journalCore) Sync() error { return nil }

// pair is one field as text.
type pair struct{ key, value string }

// encode renders one entry in the journal's native protocol.
func encode(e zapcore.Entry, fields []zapcore.Field, redact func(string) string) []byte {
	pairs := flatten(fields)
	for i := range pairs {
		pairs[i].value = redact(pairs[i].value)
	}
	e.Message, e.Stack = redact(e.Message), redact(e.Stack)
	var b bytes.Buffer
	put(&b, "MESSAGE", message(e, pairs))
	put(&b, "PRIORITY", strconv.Itoa(priority(e.Level)))
	put(&b, "SYSLOG_IDENTIFIER", "runnerd")
	if e.LoggerName != "" {
		put(&b, "RUNNERD_LOGGER", e.LoggerName)
	}
	if e.Stack != "" {
		put(&b, "RUNNERD_STACK", e.Stack)
	}
	for _, p := range pairs {
		put(&b, fieldName(p.key), p.value)
	}
	return b.Bytes()
}

// flatten turns fields into text, in their order. A namespace is not kept.
func flatten(fields []zapcore.Field) []pair {
	var pairs []pair
	for _, f := range fields {
		m := zapcore.NewMapObjectEncoder()
		f.AddTo(m)
		for _, key := range slices.Sorted(maps.Keys(m.Fields)) {
			pairs = append(pairs, pair{key, text(m.Fields[key])})
		}
	}
	return pairs
}

// text renders one value: plain for what has a plain form, else as JSON.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case time.Duration:
		return v.String()
	case time.Time:
		return v.Format(time.RFC3339Nano)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// message is the line that people read. Values of several lines, such as a
// stack, follow below it.
func message(e zapcore.Entry, pairs []pair) string {
	line, below := e.Message, ""
	for _, p := range pairs {
		switch {
		case strings.Contains(p.value, "\n"):
			below += "\n" + p.value
		case p.value == "" || strings.ContainsAny(p.value, " \"=\t"):
			line += " " + p.key + "=" + strconv.Quote(p.value)
		default:
			line += " " + p.key + "=" + p.value
		}
	}
	return line + below
}

// put appends one field, if there is room for it.
func put(b *bytes.Buffer, name, value string) {
	if len(value) > maxField {
		value = strings.ToValidUTF8(value[:maxField], "") + "…"
	}
	if b.Len()+len(name)+len(value)+10 > maxEntry {
		return
	}
	b.WriteString(name)
	if strings.Contains(value, "\n") {
		// A value of several lines is preceded by its length.
		b.WriteByte('\n')
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(value)))
		b.Write(size[:])
	} else {
		b.WriteByte('=')
	}
	b.WriteString(value)
	b.WriteByte('\n')
}

// fieldName makes a journal field's name of a log key: capitals, digits and
// underscores, at most 64.
func fieldName(key string) string {
	name := "RUNNERD_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
	return name[:min(len(name), 64)]
}

// priority is the syslog level.
func priority(l zapcore.Level) int {
	switch {
	case l <= zapcore.DebugLevel:
		return 7
	case l == zapcore.InfoLevel:
		return 6
	case l == zapcore.WarnLevel:
		return 4
	case l == zapcore.ErrorLevel:
		return 3
	}
	return 2
}
