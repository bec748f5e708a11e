// Package deliver takes a finished run's result to its destinations: a file, a
// command, a notification. cmd/runnerd runs its Worker beside those of the runs
// (or calls Worker.Now for a run in the foreground), its Pinger for dead man's
// switches, and Deliverer.Tell for the daemon's own notices.
//
// It promises that what is delivered is redacted and says so when the run was
// not ok, that a file is either whole or untouched, that each destination is
// tried on its own with its own attempts and deadline, and that an attempt whose
// outcome is unknown (its deadline passed while it was under way) is reported
// and not repeated.
package deliver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"runnerd/confine"
	"runnerd/procgroup"
	"runnerd/task"
	"runnerd/text"
)

// Kinds of destination, as `to:` takes them.
const (
	ToFile    = "file"
	ToCommand = "command"
	ToNotify  = "notify"
)

// Keys of log lines.
const (
	keyTask     = "task"
	keyRun      = "run"
	keyTo       = "to"
	keyIndex    = "index"
	keyAttempts = "attempts"
)

// Options are a Deliverer's settings; the zero value works.
type Options struct {
	// Resolve replaces ${credential:NAME} and ${env:NAME} in URLs and command
	// arguments, ResolvePath the same in paths. Without them a text that holds a
	// reference is refused.
	Resolve     func(text string) (string, error)
	ResolvePath func(text string) (string, error)
	// Redact replaces known secrets; nil leaves texts as they are.
	Redact func(text string) string
	Logger *zap.Logger

	// Door is what files are written through; nil is one that protects nothing.
	Door *confine.Door
	// Env is the environment of commands, next to the RUNNERD_* variables of the
	// run; nil is a plain PATH.
	Env []string

	// Starter starts commands; nil is one without a mark.
	Starter *procgroup.Starter

	// Timeout is for one attempt where a delivery sets none; 30 s.
	Timeout time.Duration
	// Attempts is how often one destination is tried; 3.
	Attempts int
	// Backoff is the pause after the first attempt, doubled after each; 2 s.
	Backoff time.Duration
	// Deadline is for all attempts of one destination; 5 minutes.
	Deadline time.Duration
}

// maxSends is how many notifications may be under way at once. The library
// cannot be interrupted, so a server that never answers holds one for good.
const maxSends = 16

// Deliverer delivers. Safe for concurrent use.
type Deliverer struct {
	opts  Options
	sends chan struct{}
}

// New returns a Deliverer; it does no I/O.
func New(opts Options) *Deliverer {
	if opts.Resolve == nil {
		opts.Resolve = refuseReferences
	}
	if opts.ResolvePath == nil {
		opts.ResolvePath = refuseReferences
	}
	if opts.Redact == nil {
		opts.Redact = func(s string) string { return s }
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	if opts.Door == nil {
		opts.Door = confine.New()
	}
	if opts.Starter == nil {
		opts.Starter = &procgroup.Starter{}
	}
	if opts.Env == nil {
		opts.Env = []string{"PATH=" + procgroup.DefaultPath}
	}
	opts.Timeout = orElse(opts.Timeout, 30*time.Second)
	opts.Attempts = orElse(opts.Attempts, 3)
	opts.Backoff = orElse(opts.Backoff, 2*time.Second)
	opts.Deadline = orElse(opts.Deadline, 5*time.Minute)
	return &Deliverer{opts: opts, sends: make(chan struct{}, maxSends)}
}

func orElse[T int | time.Duration](v, other T) T {
	if v <= 0 {
		return other
	}
	return v
}

func refuseReferences(text string) (string, error) {
	if strings.Contains(text, "${") {
		return "", errors.New("${...} cannot be resolved here")
	}
	return text, nil
}

// Report is what came of one destination.
type Report struct {
	// Index is the destination's place in the task's deliver list.
	Index    int
	Delivery task.Delivery
	// Attempted is false when the destination's `when` did not apply, or when it
	// is so wrong that nothing could be tried; Err tells the two apart.
	Attempted bool
	Attempts  int
	// Err is why the result is not there, in words without secrets.
	Err error
}

// Tell takes a notice of the daemon's own to one destination of kind notify or
// command. When is not looked at.
func (d *Deliverer) Tell(ctx context.Context, to task.Delivery, title, body string) Report {
	report := Report{Delivery: to}
	if to.To == ToFile {
		report.Err = errors.New("deliver: a notice cannot go to a file; use notify or command")
		return report
	}
	title = text.Line(d.opts.Redact(title))
	d.deliver(ctx, &report, message{title: title, text: d.opts.Redact(body), env: []string{"RUNNERD_TITLE=" + title}})
	d.log(task.Run{}, report)
	return report
}

// Check tells what is wrong with a destination without touching it: an unknown
// kind or `when`, a path template that does not work or leads where nothing is
// written, a URL of no known service.
// What stands behind a ${...} is not looked at.
func (d *Deliverer) Check(to task.Delivery) error {
	if _, err := (Result{}).applies(to.When); err != nil {
		return err
	}
	switch to.To {
	case ToFile:
		return d.judgePath(to.Path)
	case ToCommand:
		return checkCommand(to.Command)
	case ToNotify:
		if strings.Contains(to.URL, "${") {
			return nil
		}
		_, err := openService(to.URL)
		return err
	}
	return unknownKind(to.To)
}

func unknownKind(kind string) error {
	return fmt.Errorf("deliver: kind %q is unknown; there are file, command and notify", kind)
}

// deliver tries one destination until it is settled.
func (d *Deliverer) deliver(ctx context.Context, r *Report, m message) {
	send, err := d.sender(r.Delivery, m)
	if err == nil {
		r.Attempted = true
		r.Attempts, err = d.retry(ctx, r.Delivery.Timeout, send)
	}
	if err != nil {
		r.Err = errors.New(d.opts.Redact(fmt.Sprintf("deliver to %s: %v", r.Delivery.To, err)))
	}
}

// send makes one attempt. It ends with ctx.
type send func(ctx context.Context) error

// sender prepares what every attempt shares; an error means that none is worth
// making.
func (d *Deliverer) sender(to task.Delivery, m message) (send, error) {
	switch to.To {
	case ToFile:
		return d.toFile(to, m)
	case ToCommand:
		return d.toCommand(to, m)
	case ToNotify:
		return d.toNotify(to, m)
	}
	return nil, unknownKind(to.To)
}

func (d *Deliverer) log(run task.Run, r Report) {
	fields := []zap.Field{zap.String(keyTo, r.Delivery.To), zap.Int(keyIndex, r.Index), zap.Int(keyAttempts, r.Attempts)}
	if run.ID != "" {
		fields = append(fields, zap.String(keyTask, run.Task), zap.String(keyRun, run.ID))
	}
	switch {
	case r.Err != nil:
		d.opts.Logger.Warn("delivery failed", append(fields, zap.Error(r.Err))...)
	case r.Attempted:
		d.opts.Logger.Info("delivered", fields...)
	default:
		d.opts.Logger.Debug("nothing to deliver", append(fields, zap.String("when", r.Delivery.When))...)
	}
}
