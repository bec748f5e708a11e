package npmtest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// StartMock starts the mock of the model vendors' wires with fixtures in its own
// JSON form and returns its URL. It ends with the test. It does not check that
// the histories it is sent are well formed.
func StartMock(t testing.TB, fixtures string, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fixtures.json")
	if err := os.WriteFile(file, []byte(fixtures), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"-p", "0", "-f", file, "--validate-on-load"}, args...)
	cmd := exec.Command(Bin(t, Mock), args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(10*time.Minute, func() { cmd.Process.Kill() })
	drained := make(chan struct{})
	url := make(chan string, 1)
	go func() {
		defer close(drained)
		defer close(url)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if _, at, ok := strings.Cut(lines.Text(), "listening on "); ok {
				url <- strings.TrimSpace(at)
				break
			}
		}
		io.Copy(io.Discard, out)
	}()
	t.Cleanup(func() {
		late.Stop()
		cmd.Process.Kill()
		<-drained
		cmd.Wait()
	})
	at, ok := <-url
	if !ok {
		t.Fatal("the mock ended before it listened")
	}
	return at
}
