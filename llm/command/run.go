package command

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"runnerd/procgroup"
)

// run is one start of a program.
type run struct {
	starter    *procgroup.Starter
	argv, env  []string
	dir, input string
	out        output
	stderr     procgroup.Tail
}

// run starts the program and returns when nothing of it is left. The error is the
// program's, with the end of its stderr.
func (r *run) run(ctx context.Context) error {
	exit, err := r.starter.Run(ctx, procgroup.Program{
		Name: "model", Path: r.argv[0], Args: r.argv, Env: r.env, Dir: r.dir,
		Stdin: strings.NewReader(r.input), Stdout: &r.out, Stderr: &r.stderr,
	})
	if err != nil {
		return &startError{err, r.dir}
	}
	if !exit.Success() {
		return fmt.Errorf("command %s: %s%s", filepath.Base(r.argv[0]), exit, r.stderr.Shown())
	}
	// That it read no more of its input is its own business.
	return ctx.Err()
}

// startError is a program that did not start.
type startError struct {
	err error
	dir string
}

func (e *startError) Error() string { return "start command in " + e.dir + ": " + e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// output is the answer as it comes. It hands text on as it grows, but for white
// space at its beginning and its end.
type output struct {
	left   int64
	onText func(string)
	stop   func() // ends the program: the answer is too long

	text strings.Builder
	held []byte // white space that may be the end, or part of a rune
}

// Write keeps at most left bytes: a cut answer must not look like a whole one, so
// that one byte more ends the program.
func (o *output) Write(p []byte) (int, error) {
	if int64(len(p)) > o.left {
		o.stop()
		return 0, errTooLong
	}
	o.left -= int64(len(p))
	o.held = append(o.held, p...)
	ready := len(o.held)
	for n := 1; n <= min(utf8.UTFMax, ready); n++ {
		if c := o.held[ready-n]; utf8.RuneStart(c) {
			if !utf8.FullRune(o.held[ready-n:]) {
				ready -= n
			}
			break
		}
	}
	o.say(len(trimEnd(o.held[:ready])))
	return len(p), nil
}

// say hands on the first n bytes of what is held.
func (o *output) say(n int) {
	s := strings.ToValidUTF8(string(o.held[:n]), "\uFFFD")
	if o.text.Len() == 0 {
		s = strings.TrimLeftFunc(s, unicode.IsSpace)
	}
	o.held = append(o.held[:0], o.held[n:]...)
	if s == "" {
		return
	}
	o.text.WriteString(s)
	if o.onText != nil {
		o.onText(s)
	}
}

// finish returns the answer. Nothing may be written after it.
func (o *output) finish() string {
	o.say(len(trimEnd(o.held)))
	return o.text.String()
}

func trimEnd(b []byte) []byte { return bytes.TrimRightFunc(b, unicode.IsSpace) }
