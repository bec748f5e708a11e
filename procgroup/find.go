package procgroup

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultPath is the PATH of programs whose environment names none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Find is the file of a program as its own shell would find it: a name in the PATH
// of env, or of our own if that is nil, a path relative to dir.
func Find(program, dir string, env []string) (string, error) {
	if strings.Contains(program, "/") {
		if !filepath.IsAbs(program) {
			program = filepath.Join(dir, program)
		}
		return program, unusable(program)
	}
	path := DefaultPath
	if env == nil {
		env = ownEnviron()
	}
	for _, v := range env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			path = p
		}
	}
	for _, d := range filepath.SplitList(path) {
		if full := filepath.Join(d, program); filepath.IsAbs(full) && program != "" && unusable(full) == nil {
			return full, nil
		}
	}
	return "", fmt.Errorf("command %s not found in PATH %s", program, path)
}

// unusable says why a file cannot be started.
func unusable(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("command %s not found: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("command %s: is no file that can be run", path)
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return fmt.Errorf("command %s: not executable: %w", path, err)
	}
	return nil
}
