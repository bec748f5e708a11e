package connector

import (
	"bufio"
	"io"
	"strings"
	"sync"

	"go.uber.org/zap"
)

// What is kept of a child's standard error, and of one line of it; a line is read
// much further than it is kept, so that a secret at the cut is seen whole.
const (
	stderrBytes = 16 << 10
	stderrLine  = 4 << 10
	stderrRead  = 64 << 10
)

// stderrTail keeps the redacted end of a child's standard error. It always
// drains: a full pipe would stop the child.
type stderrTail struct {
	redact func(string) string
	log    *zap.Logger

	mu    sync.Mutex
	lines []string
	size  int
}

// drain reads until the end. Lines are cut, never split over two entries.
func (t *stderrTail) drain(r io.Reader) {
	in := bufio.NewReaderSize(r, stderrRead)
	for {
		line, more, err := in.ReadLine()
		if err != nil {
			return
		}
		text := string(line)
		for more && err == nil {
			_, more, err = in.ReadLine()
		}
		t.add(text)
	}
}

func (t *stderrTail) add(line string) {
	line = strings.TrimRight(oneLine(t.redact(line), stderrLine), " ")
	if line == "" {
		return
	}
	t.log.Debug("connector wrote to standard error", zap.String(keyLine, line))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
	t.size += len(line) + 1
	for t.size > stderrBytes && len(t.lines) > 1 {
		t.size -= len(t.lines[0]) + 1
		t.lines = t.lines[1:]
	}
}

// text is what is kept.
func (t *stderrTail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

// lastWords is the end of the text in one line, for an error.
func (t *stderrTail) lastWords() string {
	t.mu.Lock()
	lines := t.lines[max(0, len(t.lines)-8):]
	words := strings.Join(lines, " | ")
	t.mu.Unlock()
	if len(words) > 800 {
		words = "…" + strings.ToValidUTF8(words[len(words)-800:], "")
	}
	return words
}
