package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sethvargo/go-envconfig"

	"runnerd/sqldb"
)

// Settings say where things are and how much the daemon may use. They come from
// RUNNERD_* variables, read once, and from --config and --state; everything else
// is files in the config directory (DESIGN, section 5).
type Settings struct {
	ConfigDir string `env:"CONFIG_DIR" help:"task, model, connector and project files"`
	StateDir  string `env:"STATE_DIR" help:"databases, lock, connector homes, credentials/"`
	CacheDir  string `env:"CACHE_DIR" help:"a cache and a TMPDIR for each connector"`
	Socket    string `env:"SOCKET" help:"unix socket of the control API"`

	// CredentialsDir holds one file a secret; systemd sets its own.
	CredentialsDir string `env:"CREDENTIALS_DIR" help:"one file a secret, for ${credential:NAME}"`

	Database       string `env:"DATABASE" help:"main database: a file or a postgres:// URL"`
	PolicyDatabase string `env:"POLICY_DATABASE" help:"policy database: a file or a postgres:// URL"`

	// ConnectorUser is for a daemon that root runs; see ConnectorUser.
	ConnectorUser string `env:"CONNECTOR_USER" help:"for a daemon run by root: whom stdio connectors run as; root: as root, unfettered"`

	LogLevel  string `env:"LOG_LEVEL, default=info" help:"debug, info, warn or error"`
	LogFormat string `env:"LOG_FORMAT, default=auto" help:"auto, console or json; auto is console on a terminal"`

	Workers  int           `env:"WORKERS, default=4" help:"runs at the same time"`
	Grace    time.Duration `env:"SHUTDOWN_GRACE, default=20s" help:"how long runs may go on after SIGTERM"`
	Timezone string        `env:"TIMEZONE" help:"IANA zone of tasks that name none; default: TZ, /etc/localtime, /etc/timezone"`
}

// ReadSettings reads the environment once and fills in the places that systemd
// or XDG name.
func ReadSettings(ctx context.Context, lookup envconfig.Lookuper) (Settings, error) {
	var s Settings
	err := envconfig.ProcessWith(ctx, &envconfig.Config{Target: &s, Lookuper: envconfig.PrefixLookuper("RUNNERD_", lookup)})
	if err != nil {
		return s, fmt.Errorf("read RUNNERD_ settings: %w", unreadable(err, lookup))
	}
	if s.Workers < 1 || s.Workers > 1024 {
		return s, fmt.Errorf("RUNNERD_WORKERS is %d; expected 1 to 1024", s.Workers)
	}
	if s.Grace < 0 || s.Grace > time.Hour {
		return s, fmt.Errorf("RUNNERD_SHUTDOWN_GRACE is %s; expected 0s to 1h", s.Grace)
	}
	return s, nil
}

// unreadable names the variable that is no number or no duration, as people set
// it.
func unreadable(err error, lookup envconfig.Lookuper) error {
	if text, ok := lookup.Lookup("RUNNERD_WORKERS"); ok {
		if _, bad := strconv.Atoi(text); bad != nil {
			return fmt.Errorf("RUNNERD_WORKERS is %q; expected a whole number such as 4", text)
		}
	}
	if text, ok := lookup.Lookup("RUNNERD_SHUTDOWN_GRACE"); ok {
		if _, bad := time.ParseDuration(text); bad != nil {
			return fmt.Errorf("RUNNERD_SHUTDOWN_GRACE is %q; expected a duration such as 20s or 1m", text)
		}
	}
	return err
}

// Complete fills in what neither the environment nor a flag gave. A directory
// that systemd names may be a list; the first counts.
func (s *Settings) Complete(get func(string) string) error {
	home := get("HOME")
	xdg := func(key, fallback string) string {
		if dir := get(key); filepath.IsAbs(dir) {
			return filepath.Join(dir, "runnerd")
		}
		return filepath.Join(home, fallback, "runnerd")
	}
	set := func(dst *string, systemd, fallback string) {
		if *dst == "" {
			*dst, _, _ = strings.Cut(get(systemd), ":")
		}
		if *dst == "" {
			*dst = fallback
		}
	}
	set(&s.ConfigDir, "CONFIGURATION_DIRECTORY", xdg("XDG_CONFIG_HOME", ".config"))
	set(&s.StateDir, "STATE_DIRECTORY", xdg("XDG_STATE_HOME", ".local/state"))
	set(&s.CacheDir, "CACHE_DIRECTORY", xdg("XDG_CACHE_HOME", ".cache"))
	for _, dir := range []*string{&s.ConfigDir, &s.StateDir, &s.CacheDir} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return fmt.Errorf("make %s absolute: %w", *dir, err)
		}
		*dir = abs
	}
	if s.Socket == "" {
		run, _, _ := strings.Cut(get("RUNTIME_DIRECTORY"), ":")
		if run == "" {
			run = s.StateDir
		}
		s.Socket = filepath.Join(run, "control.sock")
	}
	if s.Database == "" {
		s.Database = filepath.Join(s.StateDir, "runnerd.db")
	}
	if s.PolicyDatabase == "" {
		s.PolicyDatabase = filepath.Join(s.StateDir, "task_policies.db")
	}
	for _, dsn := range []*string{&s.Database, &s.PolicyDatabase} {
		if sqldb.IsPostgres(*dsn) {
			continue
		}
		path, err := sqldb.Path(*dsn)
		if err != nil {
			return fmt.Errorf("RUNNERD_DATABASE and RUNNERD_POLICY_DATABASE: %w", err)
		}
		*dsn = path
	}
	return nil
}

// CredentialDirs are looked through in order.
func (o Options) CredentialDirs() []string {
	var dirs []string
	for _, d := range []string{o.Getenv("CREDENTIALS_DIRECTORY"), o.CredentialsDir, filepath.Join(o.StateDir, "credentials")} {
		if d != "" {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

// Protected are the paths that no connector's process may reach: the directories
// and, wherever they are, the databases with what SQLite keeps beside them.
func (o Options) Protected() []string {
	paths := append([]string{o.StateDir, o.ConfigDir, filepath.Dir(o.Socket)}, o.CredentialDirs()...)
	for _, dsn := range []string{o.Database, o.PolicyDatabase} {
		if file, err := sqldb.Path(dsn); err == nil { // none on PostgreSQL
			paths = append(paths, file, file+"-wal", file+"-shm", file+"-journal", file+".lock")
		}
	}
	return paths
}
