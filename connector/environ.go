package connector

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"runnerd/confine"
	"runnerd/procgroup"
)

// defaultPath is the PATH of children whose environment names none.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// command is a server's command line and surroundings with everything resolved.
type command struct {
	path string
	args []string // the zeroth included
	env  []string
	dir  string
	home string
	// cache and temp are its own, as its HOME is: what two connectors could write,
	// one could use to be the other.
	cache, temp string
	// walls keep it from what is protected.
	walls *procgroup.Walls
}

// command resolves the spec of a stdio connector and makes its HOME.
func (c *conn) command() (command, error) {
	opts := c.pool.opts
	if opts.StateDir == "" {
		return command{}, fmt.Errorf("no state directory to make its HOME in")
	}
	cmd := command{home: filepath.Join(opts.StateDir, "connectors", c.id)}
	cmd.cache = filepath.Join(cmd.home, ".cache")
	if opts.CacheDir != "" {
		cmd.cache = filepath.Join(opts.CacheDir, c.id)
	}
	cmd.temp = filepath.Join(cmd.cache, "tmp")
	if err := c.makeOwn(cmd); err != nil {
		return command{}, fmt.Errorf("make its own directories: %w", err)
	}
	cmd.dir = cmd.home
	protected := slices.Clone(opts.Protected)
	for _, others := range []string{filepath.Dir(cmd.home), opts.CacheDir} {
		if others != "" {
			protected = append(protected, others)
		}
	}
	cmd.walls = &procgroup.Walls{Protected: protected, Allowed: []string{cmd.home, cmd.cache}, As: opts.As, Fettered: opts.Fettered}
	var err error
	if c.spec.Dir != "" {
		if cmd.dir, err = c.resolvePath("cwd", c.spec.Dir); err != nil {
			return command{}, err
		}
		if info, err := os.Stat(cmd.dir); err != nil || !info.IsDir() {
			return command{}, advise("make it or correct cwd in connectors.yaml", "its cwd %s is no directory", cmd.dir)
		}
	}
	if cmd.env, err = c.environ(cmd); err != nil {
		return command{}, err
	}
	if c.spec.Builtin != "" {
		cmd, err = c.builtin(cmd)
	} else {
		cmd, err = c.external(cmd)
	}
	if err == nil && opts.Fettered {
		cmd.walls.Writable = c.named(cmd)
	}
	return cmd, err
}

// makeOwn makes the directories that are a connector's own. One that runs as somebody
// else gets them as theirs, and may go through what lies above.
func (c *conn) makeOwn(cmd command) error {
	opts := c.pool.opts
	for _, dir := range []string{cmd.home, cmd.cache, cmd.temp} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if opts.As != nil {
			if err := os.Chown(dir, int(opts.As.UID), int(opts.As.GID)); err != nil {
				return err
			}
		}
	}
	if opts.As == nil {
		return nil
	}
	for _, dir := range []string{opts.StateDir, filepath.Dir(cmd.home), cmp.Or(opts.CacheDir, cmd.home)} {
		if err := os.Chmod(dir, 0o711); err != nil {
			return err
		}
	}
	return nil
}

// systems are places that no connector's entry opens for a fettered one.
var systems = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var/lib", "/var/spool", "/var/run"}

// named are the places that a fettered connector may change: temporary ones, where it
// starts, and what its entry names by an absolute path. Of a file that is not there
// yet its directory is meant.
func (c *conn) named(cmd command) []string {
	places := []string{"/tmp", "/var/tmp"}
	words := append([]string{cmd.dir}, cmd.args[1:]...)
	for k := range c.spec.Env {
		words = append(words, valueOf(cmd.env, k))
	}
	for _, w := range words {
		if _, after, ok := strings.Cut(w, "="); ok && strings.HasPrefix(w, "-") {
			w = after
		}
		if !filepath.IsAbs(w) {
			continue
		}
		place := confine.Real([]string{w})[0]
		if _, err := os.Stat(place); err != nil {
			place = filepath.Dir(place)
		}
		above := func(s string) bool {
			return place == "/" || s == place || strings.HasPrefix(s, place+"/") || strings.HasPrefix(place, s+"/")
		}
		if !slices.ContainsFunc(systems, above) {
			places = append(places, place)
		}
	}
	return places
}

func valueOf(env []string, key string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, key+"="); ok {
			return v
		}
	}
	return ""
}

// resolve replaces what a string of the spec refers to.
func (c *conn) resolve(what, s string) (string, error) {
	return resolved(what, s, c.pool.opts.Resolve)
}

// resolvePath is resolve for a path, in which a variable is no secret.
func (c *conn) resolvePath(what, s string) (string, error) {
	return resolved(what, s, c.pool.opts.ResolvePath)
}

func resolved(what, s string, by func(string) (string, error)) (string, error) {
	v, err := by(s)
	if err != nil {
		return "", fmt.Errorf("resolve its %s: %w", what, err)
	}
	return v, nil
}

func (c *conn) resolveArgs() ([]string, error) {
	var args []string
	for i, a := range c.spec.Args {
		v, err := c.resolve("args["+strconv.Itoa(i)+"]", a)
		if err != nil {
			return nil, err
		}
		args = append(args, v)
	}
	return args, nil
}

// builtin is the command line of a server that our own binary is.
func (c *conn) builtin(cmd command) (command, error) {
	extra, err := c.resolveArgs()
	if err != nil {
		return command{}, err
	}
	cmd.path = c.pool.opts.Executable
	cmd.args = []string{"runnerd", "mcp", c.spec.Builtin}
	if c.spec.Root != "" {
		root, err := c.resolvePath("root", c.spec.Root)
		if err != nil {
			return command{}, err
		}
		where := "--root"
		if c.spec.Builtin == "shell" {
			where = "--dir" // it starts there, but is not bound to it
		}
		cmd.args = append(cmd.args, where, root)
	}
	if c.spec.AllowPrivate && c.spec.Builtin == "fetch" {
		cmd.args = append(cmd.args, "--allow-private")
	}
	cmd.args = append(cmd.args, extra...)
	return cmd, nil
}

// external is the command line of somebody else's server.
func (c *conn) external(cmd command) (command, error) {
	name, err := c.resolvePath("command", c.spec.Command)
	if err != nil {
		return command{}, err
	}
	extra, err := c.resolveArgs()
	if err != nil {
		return command{}, err
	}
	if name == "" {
		return command{}, advise("fix command in connectors.yaml", "its command is empty")
	}
	if cmd.path, err = procgroup.Find(name, cmd.dir, cmd.env); err != nil {
		return command{}, advise(fmt.Sprintf("install %s or fix command in connectors.yaml", name), "%w", err)
	}
	cmd.args = append([]string{name}, extra...)
	return cmd, nil
}

// environ is the whole environment of a child: what the caller chose, what makes
// it keep to its own directories, and what the spec says.
func (c *conn) environ(cmd command) ([]string, error) {
	vars := map[string]string{"PATH": defaultPath, "npm_config_update_notifier": "false"}
	for _, kv := range c.pool.opts.Environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			vars[k] = v
		}
	}
	vars["HOME"] = cmd.home
	vars["npm_config_cache"] = filepath.Join(cmd.cache, "npm")
	vars["XDG_CACHE_HOME"] = cmd.cache
	vars["TMPDIR"] = cmd.temp
	for _, k := range slices.Sorted(maps.Keys(c.spec.Env)) {
		v, err := c.resolve("env "+k, c.spec.Env[k])
		if err != nil {
			return nil, err
		}
		vars[k] = v
	}
	var env []string
	for _, k := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, k+"="+vars[k])
	}
	return env, nil
}
