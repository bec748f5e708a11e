package control

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// StateHeader names the state directory that the caller means. A daemon of another
// one refuses the request with CodeElsewhere and does nothing. Without the header
// whoever listens answers.
const StateHeader = "X-Runnerd-State"

// stateNames are what two processes may know one state directory by: its path, that
// path without links, and, where it can be looked at, its inode, which is the same
// wherever it is mounted. One in common is enough.
func stateNames(dir string) []string {
	names := []string{"path " + url.PathEscape(filepath.Clean(dir))}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		names = append(names, "path "+url.PathEscape(real))
	}
	if info, err := os.Stat(dir); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			names = append(names, fmt.Sprintf("inode %d:%d", st.Dev, st.Ino))
		}
	}
	return slices.Compact(names)
}

// misdirected is the refusal of a request that means the daemon of another state
// directory, else nil.
func (s *Server) misdirected(r *http.Request) error {
	meant := r.Header.Values(StateHeader)
	if len(meant) == 0 || slices.ContainsFunc(meant, func(name string) bool { return slices.Contains(s.state, name) }) {
		return nil
	}
	other, err := url.PathUnescape(strings.TrimPrefix(meant[0], "path "))
	if err != nil {
		other = meant[0]
	}
	return &Error{
		Status: http.StatusMisdirectedRequest, Code: CodeElsewhere, PID: s.o.Daemon.PID,
		Message: fmt.Sprintf("the daemon that listens there works with %s, not with %s", s.o.StateDir, other),
		Hint:    "`--state` or RUNNERD_STATE_DIR say whose daemon is meant, RUNNERD_SOCKET where it listens",
	}
}
