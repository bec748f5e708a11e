package db

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func isPostgres(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// sqlitePath is the file that a DSN names. Parameters are this package's own.
func sqlitePath(dsn string) (string, error) {
	path := strings.TrimPrefix(dsn, "file:")
	switch {
	case path == "":
		return "", errors.New("no DSN: want the path of a file, or a postgres:// URL")
	case path == ":memory:":
		return "", errors.New("DSN :memory: has no file: want the path of a file, or a postgres:// URL")
	case strings.Contains(path, "?") && path != dsn:
		return "", fmt.Errorf("DSN %q: parameters are set by runnerd, give the path alone", dsn)
	case strings.Contains(path, "://"):
		return "", fmt.Errorf("DSN %q: want the path of a file, or a postgres:// URL", dsn)
	}
	return filepath.Abs(path)
}

// writeDSN makes each transaction take the write lock at once: one that reads
// first and writes later would get "busy" without waiting. Synchronous is FULL
// because a receipt must be on disk before its effect (DESIGN, promise 3).
func writeDSN(path string, busy time.Duration) string {
	return sqliteDSN(path, "rwc", []string{
		pragmaBusy(busy), "auto_vacuum(INCREMENTAL)", "journal_mode(WAL)", "synchronous(FULL)",
		"foreign_keys(ON)", "temp_store(MEMORY)", "cache_size(-16384)", "journal_size_limit(67108864)",
	}, "immediate")
}

func readDSN(path string, busy time.Duration) string {
	return sqliteDSN(path, "rw", []string{
		pragmaBusy(busy), "query_only(ON)", "temp_store(MEMORY)", "cache_size(-2048)",
	}, "deferred")
}

func pragmaBusy(d time.Duration) string { return fmt.Sprintf("busy_timeout(%d)", d.Milliseconds()) }

func sqliteDSN(path, mode string, pragmas []string, lock string) string {
	q := url.Values{"mode": {mode}, "_pragma": pragmas, "_txlock": {lock}}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// prepareFile creates the file readable by its owner only (the write-ahead log
// takes its mode from it), or looks whether the one that stands there can be a
// database, so that no open ever writes over something else.
func prepareFile(path string, readOnly bool) error {
	flags := os.O_RDWR | os.O_CREATE
	if readOnly {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) && readOnly {
		return fmt.Errorf("%w: start the daemon once to create it", ErrNotFound)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return checkHeader(f)
}

// checkHeader finds a file that is no SQLite database, or one that was cut
// short. An empty file is a new database.
func checkHeader(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return nil
	}
	head := make([]byte, 100)
	if _, err := io.ReadFull(f, head); err != nil {
		return fmt.Errorf("%w: the file has only %d bytes; restore a backup", ErrCorrupt, info.Size())
	}
	if string(head[:16]) != "SQLite format 3\x00" {
		return fmt.Errorf("%w: the file is no SQLite database; move it away or restore a backup", ErrCorrupt)
	}
	if wal, err := os.Stat(f.Name() + "-wal"); err == nil && wal.Size() > 0 {
		return nil // the log may hold the missing pages
	}
	page := int64(binary.BigEndian.Uint16(head[16:18]))
	if page == 1 {
		page = 65536
	}
	if want := page * int64(binary.BigEndian.Uint32(head[28:32])); info.Size() < want {
		return fmt.Errorf("%w: the file has %d bytes of %d; restore a backup", ErrCorrupt, info.Size(), want)
	}
	return nil
}
