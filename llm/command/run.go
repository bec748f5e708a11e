package command

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"runnerd/internal/procgroup"

	"golang.org/x/sys/unix"
)

// run is one start of a program.
type run struct {
	argv, env  []string
	dir, input string
	out        output
	stderr     procgroup.Tail
}

// run starts the program in a process group of its own and returns when nothing
// of the group is left. The error is the program's, with the end of its stderr.
func (r *run) run(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, r.argv[0], r.argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(r.input), &r.out, &r.stderr
	cmd.Env, cmd.Dir = r.env, r.dir // New saw to it that neither is absent: that would inherit
	err := procgroup.Run(cmd)
	if cmd.ProcessState == nil {
		return &startError{err, r.dir}
	}
	if err != nil && !cmd.ProcessState.Success() {
		return fmt.Errorf("command %s: %s%s", filepath.Base(r.argv[0]), cmd.ProcessState, r.stderr.Shown())
	}
	// That it read no more of its input, or left its output to a child that is
	// now dead, is its own business.
	return ctx.Err()
}

// startError is a program that did not start.
type startError struct {
	err error
	dir string
}

func (e *startError) Error() string { return "start command in " + e.dir + ": " + e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// find is the path of a program: as it is named, or looked up in the PATH of env.
func find(program string, env []string) (string, error) {
	if strings.Contains(program, "/") {
		return program, unusable(program)
	}
	path := defaultPath
	for _, v := range env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			path = p
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if full := filepath.Join(dir, program); filepath.IsAbs(full) && unusable(full) == nil {
			return full, nil
		}
	}
	return "", fmt.Errorf("command %q was not found in %s: install it, or give its full path", program, path)
}

// unusable says why a file cannot be started.
func unusable(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("command %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("command %s: is no file", path)
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return fmt.Errorf("command %s: may not be executed: %w", path, err)
	}
	return nil
}

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
