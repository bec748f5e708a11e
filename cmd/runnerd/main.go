// Command runnerd runs LLM agents on a schedule, unattended.
//
// This package is flags, verbs, printing and exit codes. The daemon is in package
// daemon; rules live in the packages beside it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"syscall"
	"time"
	_ "time/tzdata" // zones on machines that have none

	"github.com/alecthomas/kong"
	"github.com/sethvargo/go-envconfig"

	"runnerd/daemon"
	"runnerd/sqldb"
	"runnerd/task"
	"runnerd/text"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv, envconfig.OsLookuper()))
}

// cli is every verb with its flags.
type cli struct {
	Config string `help:"Config directory." type:"path" placeholder:"DIR"`
	State  string `help:"State directory." type:"path" placeholder:"DIR"`

	Demo       demoCmd       `cmd:"" help:"Watch one task run for real: offline, in a temporary directory."`
	Init       initCmd       `cmd:"" help:"Write a commented starter config."`
	Check      checkCmd      `cmd:"" help:"Report every error in every file; then show what each task would do."`
	Run        runCmd        `cmd:"" help:"Run one task now and show its progress."`
	Serve      serveCmd      `cmd:"" help:"Be the daemon."`
	Status     statusCmd     `cmd:"" help:"Show the daemon, its tasks and what needs attention."`
	Next       nextCmd       `cmd:"" help:"Show when tasks, or a cron line, are due next."`
	Tasks      tasksCmd      `cmd:"" aliases:"list,ls" help:"List tasks."`
	Runs       runsCmd       `cmd:"" help:"List runs, newest first."`
	Tail       tailCmd       `cmd:"" help:"Follow runs as they happen."`
	Show       showCmd       `cmd:"" aliases:"logs" help:"Show a run: transcript, receipts, status."`
	Why        whyCmd        `cmd:"" help:"Say what became of a task's scheduled instants."`
	Explain    explainCmd    `cmd:"" help:"Show the decision that each tool of a task would get, and why."`
	Cancel     cancelCmd     `cmd:"" help:"End a run."`
	Approvals  approvalsCmd  `cmd:"" help:"List calls that wait for a person."`
	Approve    approveCmd    `cmd:"" help:"Let one exact call go, once."`
	Deny       denyCmd       `cmd:"" help:"Refuse a call that waits."`
	Policy     policyCmd     `cmd:"" help:"Show and override what a task may do."`
	Session    sessionCmd    `cmd:"" help:"Show and set what a session may reach."`
	Pause      pauseCmd      `cmd:"" help:"Skip a task's instants, or every task's, until resumed."`
	Resume     resumeCmd     `cmd:"" help:"End a pause."`
	Reload     reloadCmd     `cmd:"" help:"Have the daemon read every file again."`
	Connectors connectorsCmd `cmd:"" help:"List connectors and their tools."`
	Cost       costCmd       `cmd:"" help:"Show what was spent, per day and task."`
	Audit      auditCmd      `cmd:"" help:"Show who did what, and verify that the record is whole."`
	Backup     backupCmd     `cmd:"" help:"Copy both databases into a new directory."`
	Restore    restoreCmd    `cmd:"" help:"Put a backup in the place of both databases."`
	Doctor     doctorCmd     `cmd:"" help:"Look at the machine, the directories and the databases."`
	Schema     schemaCmd     `cmd:"" help:"Print the JSON Schema of a file kind, for editors."`
	MCP        mcpCmd        `cmd:"" name:"mcp" help:"Serve a builtin connector on standard input and output."`
	Version    versionCmd    `cmd:"" help:"Print the version."`
}

// app is what every verb works with.
type app struct {
	daemon.Options
	defaults daemon.Settings // as they would be without --config and --state
	flags    string          // --config and --state, as given
	in       io.Reader
	out, err io.Writer

	toldUnasked bool // why whoever listens at the socket is not asked
}

// exit is an error that carries the exit code of DESIGN, section 11.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string { return e.err.Error() }
func (e *exit) Unwrap() error { return e.err }

// usage is a mistake of the caller's, or of a file's.
func usage(format string, args ...any) error {
	return &exit{task.ExitUsage, fmt.Errorf(format, args...)}
}

// errSilent ends with a code when everything has been said.
var errSilent = errors.New("")

// run is the whole program with its surroundings passed in. It returns the exit
// code.
func run(args []string, in io.Reader, out, errw io.Writer, getenv func(string) string, env envconfig.Lookuper) (code int) {
	var c cli
	exited := -1
	parser, err := kong.New(&c, kong.Name("runnerd"), kong.Description("Runs LLM agents on a schedule, unattended."),
		kong.Writers(out, errw), kong.Exit(func(code int) { exited = code; panic(errSilent) }), kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		kong.TypeMapper(reflect.TypeFor[time.Time](), kong.MapperFunc(instantFlag)))
	if err != nil {
		text.Fprintf(errw, "runnerd: %s\n", text.Raw(text.Indent(err.Error(), 2)))
		return task.ExitInternal
	}
	defer func() {
		if v := recover(); v != nil {
			if v != error(errSilent) {
				panic(v)
			}
			code = exited // --help
		}
	}()
	kctx, err := parser.Parse(helpVerb(args))
	if err != nil {
		text.Fprintf(errw, "runnerd: %s\n%s\n", err, helpHint(err))
		return task.ExitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	a := &app{in: in, out: out, err: errw, Options: daemon.Options{Getenv: getenv, Log: errw, Version: versionText(), Caller: caller()}}
	if err := a.settle(ctx, c, env); err != nil {
		text.Fprintf(errw, "runnerd: %s\n", text.Raw(text.Indent(err.Error(), 2)))
		return task.ExitUsage
	}
	kctx.BindTo(ctx, (*context.Context)(nil))
	err = kctx.Run(a)
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = &exit{task.ExitStopped, errors.New("interrupted")}
	}
	return report(errw, err)
}

// helpVerb lets people write `runnerd help run` as well.
func helpVerb(args []string) []string {
	if len(args) > 0 && args[0] == "help" {
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}

// helpHint says where the right use of what was mistyped is shown.
func helpHint(err error) string {
	var bad *kong.ParseError
	if errors.As(err, &bad) && bad.Context != nil {
		if verb := bad.Context.Selected(); verb != nil {
			return fmt.Sprintf("`%s --help` shows its use.", verb.FullPath())
		}
	}
	return "runnerd --help lists the verbs."
}

// instantFlag reads an instant that a person typed.
func instantFlag(ctx *kong.DecodeContext, target reflect.Value) error {
	var s string
	if err := ctx.Scan.PopValueInto("instant", &s); err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339, s)
	if ago, aerr := time.ParseDuration(s); err != nil && aerr == nil && ago >= 0 {
		t, err = time.Now().Add(-ago), nil
	}
	if err != nil {
		return fmt.Errorf("%q is not an instant; expected one such as 2026-12-24T18:00:00Z or 2026-12-24T18:00:00+01:00, or how long ago, such as 24h", s)
	}
	target.Set(reflect.ValueOf(t))
	return nil
}

// settle reads the settings: environment first, flags over it.
func (a *app) settle(ctx context.Context, c cli, env envconfig.Lookuper) error {
	s, err := daemon.ReadSettings(ctx, env)
	if err != nil {
		return err
	}
	if _, _, err := daemon.ConnectorUser(s.ConnectorUser); err != nil {
		return err
	}
	a.defaults = s
	if err := a.defaults.Complete(a.Getenv); err != nil {
		return err
	}
	if c.Config != "" {
		s.ConfigDir = c.Config
		a.flags += " --config " + c.Config
	}
	if c.State != "" {
		s.StateDir = c.State
		a.flags += " --state " + c.State
	}
	a.Settings, a.Command = s, a.again()
	return a.Complete(a.Getenv)
}

// report prints an error and turns it into an exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return task.ExitOK
	}
	if !errors.Is(err, errSilent) {
		text.Fprintf(w, "runnerd: %s\n", text.Raw(text.Indent(err.Error(), 2)))
	}
	var e *exit
	var held *sqldb.HeldError
	var mend *daemon.UsageError
	switch {
	case errors.As(err, &e):
		return e.code
	case errors.As(err, &mend):
		return task.ExitUsage
	case errors.As(err, &held):
		return task.ExitUsage // another daemon, or another --state
	}
	return task.ExitInternal
}
