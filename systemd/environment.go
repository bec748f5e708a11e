package systemd

import (
	"fmt"
	"os"
	"syscall"
)

// Managed tells whether systemd started this process as a service.
func Managed(getenv func(string) string) bool {
	return getenv("INVOCATION_ID") != "" || getenv("NOTIFY_SOCKET") != ""
}

// ToJournal tells whether f, the process's standard error, goes to the journal:
// whether it is the very stream that JOURNAL_STREAM names.
func ToJournal(getenv func(string) string, f *os.File) bool {
	stream := getenv("JOURNAL_STREAM")
	if stream == "" {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stream == fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}
