package wire

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"strings"
	"time"

	"runnerd/llm"
)

// Body is an answer of status 2xx as it comes.
type Body struct {
	r io.Reader
	// settle ends the reading of what follows a whole answer after a while.
	settle func()
}

// NewBody returns the body that r is.
func NewBody(r io.Reader) *Body { return &Body{r: r} }

// Settle says that the answer is whole. What may still follow, a count of tokens
// or an end marker, is waited for a moment only: some servers leave the
// connection open.
func (b *Body) Settle() {
	if b.settle != nil {
		b.settle()
	}
}

// settleTime is how long a whole answer is waited on for what may follow it.
const settleTime = 2 * time.Second

// Event is one part of an answer: an event of a stream, or one JSON value.
type Event struct {
	// Type is the event's name; empty for most servers.
	Type string
	Data []byte
	// Done tells the end marker [DONE], which has no data.
	Done bool
}

// Events reads an answer for what it is, whatever its content type says:
// server-sent events, or JSON values one after another. It forgives a byte order
// mark, any line break, comments, a last event without its blank line, several
// values in one event and a bare JSON line among events. A web page is an error.
func (b *Body) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		r := bufio.NewReader(b.r)
		first, err := firstByte(r)
		switch {
		case errors.Is(err, io.EOF):
		case err != nil:
			yield(Event{}, err)
		case first == '<':
			yield(Event{}, &llm.Error{Kind: llm.NotFound, Message: "a web page answered (HTML), not a model: check base_url"})
		case first == '{' || first == '[':
			values(r, yield)
		default:
			(&stream{r: r, yield: yield}).read()
		}
	}
}

// firstByte skips a byte order mark and white space and peeks at what follows.
func firstByte(r *bufio.Reader) (byte, error) {
	if mark, err := r.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = r.Discard(3) // what was peeked at is there
	}
	for {
		c, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if !strings.ContainsRune(" \t\r\n", rune(c)) {
			return c, r.UnreadByte()
		}
	}
}

// values yields JSON values, the members of a list one by one.
func values(r io.Reader, yield func(Event, error) bool) {
	dec := json.NewDecoder(r)
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		var bad *json.SyntaxError
		switch {
		case errors.Is(err, io.EOF):
			return
		case errors.As(err, &bad):
			yield(Event{}, Malformed("read answer: %s", err))
			return
		case err != nil:
			yield(Event{}, err)
			return
		}
		var list []json.RawMessage
		if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
			list = []json.RawMessage{raw}
		}
		for _, v := range list {
			if !yield(Event{Data: v}, nil) {
				return
			}
		}
	}
}

// stream reads server-sent events line by line.
type stream struct {
	r     *bufio.Reader
	yield func(Event, error) bool
	cr    bool // the last line ended with \r; a \n after it belongs to it

	kind string
	data []string

	any bool   // a field of an event was seen
	odd string // the first line that is none
}

func (s *stream) read() {
	for {
		line, err := s.line()
		switch {
		case err == nil:
			if !s.take(line) {
				return
			}
			continue
		case !errors.Is(err, io.EOF):
			s.yield(Event{}, err)
			return
		}
		if line != "" && !s.take(line) || !s.flush(true) {
			return
		}
		if !s.any && s.odd != "" {
			s.yield(Event{}, Malformed("read answer: it is no stream and no JSON: %s", words(s.odd)))
		}
		return
	}
}

// line reads up to \n, \r or both, without them.
func (s *stream) line() (string, error) {
	var b []byte
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return string(b), err
		}
		after := s.cr
		s.cr = c == '\r'
		switch {
		case c == '\n' && after && len(b) == 0:
		case c == '\n' || c == '\r':
			return string(b), nil
		default:
			b = append(b, c)
		}
	}
}

// take adds a line to the event that grows. It tells whether more is wanted.
func (s *stream) take(line string) bool {
	if line == "" {
		return s.flush(false)
	}
	if line[0] == '{' { // an error that a proxy wrote into the stream as it was
		s.data = append(s.data, line)
		return true
	}
	field, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch field {
	case "data":
		s.any = true
		s.data = append(s.data, value)
	case "event":
		s.kind = value
	case "", "id", "retry": // a comment, or what only a browser needs
	default:
		if s.odd == "" {
			s.odd = line
		}
	}
	return true
}

// flush yields the event that has grown: its data whole, or where only that is
// JSON, each line by itself. At the end of the stream data that is cut is the
// stream's end too.
func (s *stream) flush(end bool) bool {
	kind, lines := s.kind, s.data
	s.kind, s.data = "", nil
	if len(lines) == 0 {
		return true
	}
	if whole := strings.Join(lines, "\n"); len(lines) == 1 || json.Valid([]byte(whole)) {
		lines = []string{whole}
	}
	for _, l := range lines {
		l = strings.TrimSpace(l)
		switch {
		case l == "":
			continue
		case end && l != "[DONE]" && !json.Valid([]byte(l)):
			return s.yield(Event{}, io.ErrUnexpectedEOF)
		}
		e := Event{Type: kind, Data: []byte(l), Done: l == "[DONE]"}
		if !s.yield(e, nil) || e.Done {
			return false
		}
	}
	return true
}
