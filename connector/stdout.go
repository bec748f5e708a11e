package connector

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// lineFilter reads the messages of a child's standard output and drops what is
// none: many servers and their wrappers print there. A line without end is an
// error, since the rest of the stream cannot be found again without holding it.
type lineFilter struct {
	in      *bufio.Reader
	limit   int
	dropped func(line []byte)
	noise   *atomic.Int64
}

func newLineFilter(r io.Reader, limit int, noise *atomic.Int64, dropped func([]byte)) *lineFilter {
	return &lineFilter{in: bufio.NewReaderSize(r, 64<<10), limit: limit, noise: noise, dropped: dropped}
}

// next returns the next line that is a message.
func (f *lineFilter) next() ([]byte, error) {
	for {
		line, err := f.line()
		switch {
		case err != nil:
			return nil, err
		case isMessage(line):
			return line, nil
		case len(bytes.TrimSpace(line)) > 0:
			f.noise.Add(1)
			f.dropped(line)
		}
	}
}

// line reads one line with its end. A last line without one is handed on too.
func (f *lineFilter) line() ([]byte, error) {
	var line []byte
	for {
		part, err := f.in.ReadSlice('\n')
		if len(line)+len(part) > f.limit {
			return nil, advise("make the tool answer with less",
				"a line on its standard output is longer than %s", byteSize(f.limit))
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return append(line, '\n'), nil
		default:
			return nil, err
		}
	}
}

// isMessage tells whether a line can be a JSON-RPC message: an object, or the
// array of a batch.
func isMessage(line []byte) bool {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' && line[0] != '[' {
		return false
	}
	if line[0] == '{' {
		var m struct {
			JSONRPC string `json:"jsonrpc"`
		}
		return json.Unmarshal(line, &m) == nil && m.JSONRPC == "2.0"
	}
	return json.Valid(line)
}

func byteSize(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
