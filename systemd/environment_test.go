package systemd_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"runnerd/systemd"
)

func TestManaged(t *testing.T) {
	for _, tc := range []struct {
		env  []string
		want bool
	}{
		{nil, false},
		{[]string{"JOURNAL_STREAM", "1:2"}, false},
		{[]string{"INVOCATION_ID", "7f"}, true},
		{[]string{"NOTIFY_SOCKET", "/run/systemd/notify"}, true},
	} {
		if got := systemd.Managed(environ(tc.env...)); got != tc.want {
			t.Errorf("Managed with %v = %t", tc.env, got)
		}
	}
}

func TestToJournal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	info, err := w.Stat()
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	same := fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
	other := fmt.Sprintf("%d:%d", stat.Dev, stat.Ino+1)
	for stream, want := range map[string]bool{same: true, other: false, "": false, "x": false} {
		if got := systemd.ToJournal(environ("JOURNAL_STREAM", stream), w); got != want {
			t.Errorf("JOURNAL_STREAM=%q: %t, want %t", stream, got, want)
		}
	}
	w.Close()
	if systemd.ToJournal(environ("JOURNAL_STREAM", same), w) {
		t.Error("a closed file goes to the journal")
	}
}

func TestCredential(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("openai", "sk-12345678\n")
	write("crlf", "sk-12345678\r\n")
	write("pem", "line 1\nline 2\n\n")
	write("empty", "\n")
	write("binary", "sk-\x00")
	write("huge", strings.Repeat("x", 1<<20+1))
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ dir, name, want, wantErr string }{
		{dir, "openai", "sk-12345678", ""},
		{dir, "crlf", "sk-12345678", ""},
		{dir, "pem", "line 1\nline 2\n", ""},
		{dir, "none", "", "LoadCredential=none:/PATH"},
		{dir, "empty", "", "the file is empty"},
		{dir, "binary", "", "not text"},
		{dir, "huge", "", "larger than"},
		{dir, "folder", "", "not a regular file"},
		{dir, "pipe", "", "not a regular file"},
		{dir, "../x", "", "a name is"},
		{dir, "..", "", "a name is"},
		{dir, "", "", "a name is"},
		{"", "openai", "", "no credentials directory"},
	} {
		got, err := systemd.Credential(tc.dir, tc.name)
		if got != tc.want || (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
			t.Errorf("Credential(%q) = %q, %v; want %q, %q", tc.name, got, err, tc.want, tc.wantErr)
		}
		if err != nil && strings.Contains(err.Error(), "sk-") {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
	if _, err := systemd.Credential(dir, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file is %v, want fs.ErrNotExist", err)
	}
}

// TestListeners hands real sockets to a real child.
func TestListeners(t *testing.T) {
	path := newManager(t).path + "1"
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, tc := range []struct {
		name, env string
		files     []*os.File
		want      string
	}{
		{"one", "LISTEN_PID=$$ LISTEN_FDS=1", []*os.File{socket}, "[" + path + "] exists\n"},
		{"none", "LISTEN_PID=$$ LISTEN_FDS=0", nil, "[]\n"},
		{"another process's", "LISTEN_PID=1 LISTEN_FDS=1", []*os.File{socket}, "[]\n"},
		{"no socket", "LISTEN_PID=$$ LISTEN_FDS=2", []*os.File{socket, null}, "error: take over socket 4: "},
		{"no number", "LISTEN_PID=$$ LISTEN_FDS=many", nil, `error: take over sockets: LISTEN_FDS is "many"`},
		{"too many", "LISTEN_PID=$$ LISTEN_FDS=1000000", nil, "error: take over sockets: LISTEN_FDS"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := exec.Command("/bin/sh", "-c", tc.env+` RUNNERD_TEST_LISTENERS=1 GORACE=atexit_sleep_ms=0 exec "$0"`, os.Args[0])
			cmd.ExtraFiles = tc.files
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), tc.want) {
				t.Errorf("child said %q (%v), want %q", out, err, tc.want)
			}
		})
	}
}

// listenersChild prints what it was given, closes it and says whether the path
// is still there.
func listenersChild() {
	listeners, err := systemd.Listeners(os.Getenv)
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	var names, after []string
	for _, l := range listeners {
		names = append(names, l.Addr().String())
		if err := l.Close(); err != nil {
			fmt.Println("close:", err)
		}
		if _, err := os.Stat(l.Addr().String()); err == nil {
			after = append(after, " exists")
		}
	}
	fmt.Print(names, strings.Join(after, ""), "\n")
}
