package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/config"
	"runnerd/confine"
	"runnerd/deliver"
	"runnerd/redact"
	"runnerd/scheduler"
	"runnerd/sqldb"
	"runnerd/task"
)

// Options say where a daemon lives and what surrounds it.
type Options struct {
	Settings
	// Getenv reads what systemd says, and what children inherit.
	Getenv func(string) string
	// Log is where logs go, and what Inspect warns of.
	Log io.Writer
	// Command is how people call runnerd for this daemon; notices name it.
	Command string
	Version string
	// Consent is what a person accepts about the databases, for this start.
	Consent sqldb.Consent
	// Caller names the person on whose behalf the process works, for the record.
	Caller string

	// Of tests: how connectors are opened, how often files are looked at without the
	// kernel's help, what stands in for / where the machine's zone is looked up and
	// for a minute in the daemon's own rounds, and what is listened on.
	Dial     func(context.Context, task.Connector) (mcp.Transport, error)
	Poll     time.Duration
	Root     string
	Every    time.Duration
	Listener func() net.Listener
}

// UsageError is what the caller can mend: a setting, a file, a name.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *UsageError) Unwrap() error { return e.Err }

func usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// resolver resolves references and lets hide know every secret that it meets.
func (o Options) resolver(hide *redact.Set) *config.Resolver {
	return config.NewResolver(config.ResolverOptions{
		CredentialDirs: o.CredentialDirs(), Getenv: o.lookupEnv, ConfigDir: o.ConfigDir,
		OnSecret: func(known []config.Secret) { hide.Replace(redactable(known)) },
	})
}

func redactable(known []config.Secret) []redact.Secret {
	list := make([]redact.Secret, len(known))
	for i, s := range known {
		list[i] = redact.Secret{Name: s.Name, Value: s.Value}
	}
	return list
}

func (o Options) lookupEnv(key string) (string, bool) {
	v := o.Getenv(key)
	return v, v != ""
}

// Door is what files are written through: it refuses what connectors are kept from,
// and the binary.
func (o Options) Door() *confine.Door {
	paths := o.Protected()
	if self, err := os.Executable(); err == nil {
		paths = append(paths, self)
	}
	return confine.New(paths...)
}

// checkPath finds results that are to go where the door writes nothing.
func (o Options) checkPath(secrets *config.Resolver) func(task.Delivery) error {
	return deliver.New(deliver.Options{Door: o.Door(), ResolvePath: secrets.ResolvePath}).Check
}

func checkSchedule(s task.Schedule) error {
	_, err := scheduler.Parse(s)
	return err
}
