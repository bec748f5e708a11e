package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"runnerd/llm"
	"runnerd/procgroup"
)

// Options say which program is asked, and within which bounds.
type Options struct {
	// Argv is the program and its arguments. No shell reads it unless it names
	// one. A program without a slash is looked up in the PATH of Env.
	Argv []string
	// Resolve, if set, replaces references in each of Argv, afresh for each call.
	Resolve func(string) (string, error)
	// Env is the program's whole environment, as NAME=value; nil means
	// DefaultEnv. The caller's own environment is never handed on.
	Env []string
	// Dir is where the program runs; empty means /.
	Dir string
	// Timeout bounds a call; 0 means llm.DefaultTimeout.
	Timeout time.Duration
	// MaxBytes bounds the answer; 0 means llm.DefaultMaxBytes.
	MaxBytes int64
	Logger   *zap.Logger
	// Starter starts the program; nil is one without a mark.
	Starter *procgroup.Starter
}

// DefaultEnv is the environment of a program whose options say nothing.
func DefaultEnv() []string {
	return []string{"PATH=" + procgroup.DefaultPath, "LANG=C.UTF-8"}
}

// Model is one program.
type Model struct{ opts Options }

// New checks the options. It does no I/O: a program that is missing is the error
// of the call.
func New(opts Options) (*Model, error) {
	if len(opts.Argv) == 0 || opts.Argv[0] == "" {
		return nil, errors.New("command: is empty: want a program and its arguments")
	}
	if opts.Env == nil {
		opts.Env = DefaultEnv()
	}
	if opts.Dir == "" {
		opts.Dir = "/"
	}
	if opts.Timeout <= 0 {
		opts.Timeout = llm.DefaultTimeout
	}
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = llm.DefaultMaxBytes
	}
	if opts.Starter == nil {
		opts.Starter = &procgroup.Starter{}
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	return &Model{opts: opts}, nil
}

var (
	errTimeout = errors.New("the command took longer than its timeout")
	errTooLong = errors.New("answer too long")
)

// Next starts the program and waits for its end. White space around the answer is
// left out. The caller's own cancel or deadline comes back as its context's
// error, everything else as *llm.Error; a request with tools as one of kind
// ToolsUnsupported.
func (m *Model) Next(ctx context.Context, req *llm.Request) (*llm.Response, error) {
	if err := llm.CheckHistory(req.Messages); err != nil {
		return nil, err
	}
	if len(req.Tools) > 0 {
		return nil, &llm.Error{Kind: llm.ToolsUnsupported, Message: "a command takes and gives text only: set tool_mode to fenced or none"}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("ask model: %w", err)
	}
	argv, err := m.argv()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(m.opts.Timeout, func() { cancel(errTimeout) })
	defer timer.Stop()
	think := llm.NewThinkFilter(req.OnText)
	r := run{
		starter: m.opts.Starter, argv: argv, env: m.opts.Env, dir: m.opts.Dir, input: prompt(req.System, req.Messages),
		out: output{left: m.opts.MaxBytes, onText: think.Add, stop: func() { cancel(errTooLong) }},
	}
	err = m.blame(ctx, inner, r.run(inner))
	m.opts.Logger.Debug("model command ended", zap.String("program", argv[0]), zap.Duration("took", time.Since(begin)), zap.Error(err))
	text, thought := llm.SplitThinking(r.out.finish())
	think.End()
	if err != nil {
		return nil, spent(err, r.out.text.Len())
	}
	return &llm.Response{Text: text, Reasoning: thought, Finish: llm.FinishStop, Vendor: "command"}, nil
}

// spent wraps the error of a program that had begun to answer, or was at work when
// we let go of it: what stands behind it may charge for that.
func spent(err error, n int) error {
	if kind := llm.ErrorKind(err); n == 0 && kind != "" && kind != llm.Timeout {
		return err
	}
	return &llm.Spent{Err: err, Bytes: n}
}

func (m *Model) argv() ([]string, error) {
	argv := make([]string, len(m.opts.Argv))
	for i, arg := range m.opts.Argv {
		argv[i] = arg
		if m.opts.Resolve == nil {
			continue
		}
		var err error
		if argv[i], err = m.opts.Resolve(arg); err != nil {
			return nil, &llm.Error{Kind: llm.Auth, Message: fmt.Sprintf("resolve argument %d of command: %s", i, err), Err: err}
		}
	}
	path, err := procgroup.Find(argv[0], m.opts.Dir, m.opts.Env)
	if err != nil {
		return nil, &llm.Error{Kind: llm.NotFound, Message: err.Error(), Err: err}
	}
	argv[0] = path
	return argv, nil
}

// blame decides who ended a call: the caller, one of our bounds, or the program.
func (m *Model) blame(outer, inner context.Context, err error) error {
	cause := context.Cause(inner)
	switch {
	case errors.Is(cause, errTooLong):
		return &llm.Error{Kind: llm.Malformed, Message: fmt.Sprintf("the answer is longer than %d bytes", m.opts.MaxBytes), Err: errTooLong}
	case err == nil:
		return nil
	case outer.Err() != nil:
		return fmt.Errorf("ask model: %w", outer.Err())
	case errors.Is(cause, errTimeout):
		return &llm.Error{Kind: llm.Timeout, Message: fmt.Sprintf("%s (%s)", errTimeout, m.opts.Timeout), Err: errTimeout}
	}
	return &llm.Error{Kind: failure(err), Message: err.Error(), Err: err}
}

// failure is the kind of a program's end that nobody else is to blame for. One
// that cannot be started will not start later either, unless the machine is full.
func failure(err error) llm.Kind {
	var start *startError
	if errors.As(err, &start) && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOMEM) {
		return llm.BadRequest
	}
	return llm.ServerError
}
