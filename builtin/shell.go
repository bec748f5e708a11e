package builtin

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"runnerd/procgroup"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// keptOutput is how many bytes of each stream are answered.
	keptOutput = 64 << 10
	// maxStdin bounds what a call may feed to a command, in bytes.
	maxStdin = 1 << 20
	// pipeGrace is how long output is awaited after a command has ended, for
	// children of it that left its process group and hold its pipes.
	pipeGrace = time.Second
)

// shell runs commands. It is no sandbox: a command may do whatever the server's
// own user and containment allow, and dir is only where it starts.
type shell struct {
	dir     string
	timeout time.Duration
}

func openShell(s *mcp.Server, args []string) (func() error, error) {
	sh := &shell{}
	err := parseFlags(args, func(f *flag.FlagSet) {
		f.StringVar(&sh.dir, "dir", ".", "where commands start")
		f.DurationVar(&sh.timeout, "timeout", 2*time.Minute, "for one command")
	})
	if err != nil {
		return nil, err
	}
	if sh.timeout < time.Second {
		return nil, errors.New("--timeout must be 1s or more")
	}
	if sh.dir, err = filepath.Abs(sh.dir); err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	if info, err := os.Stat(sh.dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("--dir %s: not a directory", sh.dir)
	}
	open, destructive := true, true
	return func() error { return nil }, addTool(s, &mcp.Tool{Name: "run",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: &destructive, OpenWorldHint: &open},
		Description: fmt.Sprintf("Run a command and wait for it, %s at most. Give argv, or command for a line that sh -c runs. "+
			"Answers its output, its errors and its exit code; processes that it leaves behind are ended.", sh.timeout)},
		sh.run, between("timeout_seconds", 1, sh.timeout.Seconds()))
}

type runArgs struct {
	Command string   `json:"command,omitempty" jsonschema:"a line for sh -c"`
	Argv    []string `json:"argv,omitempty" jsonschema:"program and arguments, taken as they are, without a shell"`
	Dir     string   `json:"dir,omitempty" jsonschema:"directory to start in, absolute or relative to the server's"`
	Stdin   string   `json:"stdin,omitempty" jsonschema:"text on standard input; empty unless given"`
	Timeout int      `json:"timeout_seconds,omitempty" jsonschema:"end the command after so many seconds; the server's limit unless given"`
}

func (sh *shell) run(ctx context.Context, in runArgs) (string, error) {
	argv, err := in.argv()
	if err != nil {
		return "", err
	}
	limit := sh.timeout
	if in.Timeout > 0 {
		limit = min(limit, time.Duration(in.Timeout)*time.Second)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	dir := in.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(sh.dir, dir)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("dir %s: not a directory", dir)
	}
	path, err := procgroup.Find(argv[0], dir, nil)
	if err != nil {
		return "", fmt.Errorf("%s was not started: %w", argv[0], err)
	}
	var out, errs headTail
	exit, err := (&procgroup.Starter{}).Run(ctx, procgroup.Program{
		Name: "shell", Path: path, Args: argv, Dir: dir, Stdin: strings.NewReader(in.Stdin), Stdout: &out, Stderr: &errs,
	})
	if err != nil {
		return "", fmt.Errorf("%s was not started: %w", argv[0], err)
	}
	text := report(out.String(), errs.String())
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s[ended after %s; it had not finished]", text, limit)
	case !exit.Success():
		return "", fmt.Errorf("%s[%s]", text, ending(exit))
	}
	return text + "[exit code 0]", nil
}

func (in runArgs) argv() ([]string, error) {
	switch {
	case (in.Command == "") == (len(in.Argv) == 0):
		return nil, errors.New("give either command or argv")
	case len(in.Stdin) > maxStdin:
		return nil, fmt.Errorf("stdin has %d bytes; at most %d", len(in.Stdin), maxStdin)
	case in.Command != "":
		return []string{"/bin/sh", "-c", in.Command}, nil
	case in.Argv[0] == "":
		return nil, errors.New("argv: the program is empty")
	}
	return in.Argv, nil
}

func ending(e procgroup.Exit) string {
	if e.Signal == "" && !e.Lost {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.String()
}

func report(out, errs string) string {
	var b strings.Builder
	b.WriteString(lineEnd(out))
	if errs != "" {
		b.WriteString("[standard error]\n" + lineEnd(errs))
	}
	return b.String()
}

func lineEnd(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return s
}

// headTail keeps the first and the last half of keptOutput of what is written.
type headTail struct {
	head, tail []byte
	dropped    int64
}

func (h *headTail) Write(p []byte) (int, error) {
	n := len(p)
	if room := keptOutput/2 - len(h.head); room > 0 {
		take := min(room, len(p))
		h.head = append(h.head, p[:take]...)
		p = p[take:]
	}
	h.tail = append(h.tail, p...)
	// Trim now and then, not at each write.
	if over := len(h.tail) - keptOutput/2; over > keptOutput/2 {
		h.dropped += int64(over)
		h.tail = append(h.tail[:0], h.tail[over:]...)
	}
	return n, nil
}

func (h *headTail) String() string {
	tail, dropped := h.tail, h.dropped
	if over := len(tail) - keptOutput/2; over > 0 {
		tail, dropped = tail[over:], dropped+int64(over)
	}
	if dropped == 0 {
		return string(h.head) + string(tail)
	}
	return fmt.Sprintf("%s\n[%d bytes left out]\n%s", h.head, dropped, tail)
}
