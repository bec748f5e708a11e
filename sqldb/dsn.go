package sqldb

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// IsPostgres tells whether a DSN names a database on PostgreSQL.
func IsPostgres(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// Path is the file that a DSN names, as it is or after `file:`. Parameters are
// runnerd's own.
func Path(dsn string) (string, error) {
	path := strings.TrimPrefix(dsn, "file:")
	switch {
	case path == "":
		return "", errors.New("no DSN: want the path of a file, or a postgres:// URL")
	case strings.HasPrefix(path, ":memory:"):
		return "", errors.New("DSN :memory: has no file: want the path of a file, or a postgres:// URL")
	case strings.Contains(path, "?") && path != dsn:
		return "", fmt.Errorf("DSN %q: parameters are set by runnerd, give the path alone", dsn)
	case strings.Contains(path, "://"):
		return "", fmt.Errorf("DSN %q: want the path of a file, or a postgres:// URL", dsn)
	case strings.HasPrefix(path, "//") && path != dsn:
		path = path[1:] // file:///path
	}
	return filepath.Abs(path)
}

// Name says where a database is, without the password that a URL may hold.
func Name(dsn string) string {
	if IsPostgres(dsn) {
		if u, err := url.Parse(dsn); err == nil {
			return "on PostgreSQL (" + u.Host + u.Path + ")"
		}
		return "on PostgreSQL"
	}
	if path, err := Path(dsn); err == nil {
		return path
	}
	return dsn
}
