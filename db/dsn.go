package db

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"time"

	"runnerd/sqldb"
)

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
	return sqldb.CheckHeader(f)
}
