package procgroup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

// MarkVar is the variable that marks everything that a Starter with a mark starts:
// the mark, the program's name, our pid and a number, joined by dots.
const MarkVar = "RUNNERD_MARK"

// marks numbers the programs of this process.
var marks atomic.Int64

// MarkOf is the mark of the daemon whose state directory this is, today's and an
// earlier one's.
func MarkOf(stateDir string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(stateDir)))
	return hex.EncodeToString(sum[:8]) + "."
}

// newMark names one program and all that comes of it.
func (s *Starter) newMark(name string) string {
	if s.Mark == "" {
		return ""
	}
	return fmt.Sprintf("%s%s.%d.%d.", s.Mark, name, os.Getpid(), marks.Add(1))
}

// Sweep ends what an earlier daemon with the same mark left behind: its guards end
// their trees when it dies, but a guard can be killed too. It must be called only by
// who holds the lock on the state directory, before the first start. It returns how
// many processes it found, and whether all of them are gone.
func (s *Starter) Sweep() (found int, gone bool) {
	return sweep(s.Mark)
}

func sweep(mark string) (found int, gone bool) {
	left := marked(mark)
	if len(left) == 0 {
		return 0, true
	}
	return len(left), killAll(func() []process { return marked(mark) }, time.Now().Add(killDeadline))
}

// marked lists the living processes whose environment begins a mark with prefix;
// an empty one marks nothing.
func marked(prefix string) []process {
	if prefix == "" {
		return nil
	}
	want := []byte("\x00" + MarkVar + "=" + prefix)
	var found []process
	for _, p := range processes() {
		env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "environ"))
		if err != nil || p.zombie || p.pid == os.Getpid() {
			continue
		}
		if bytes.Contains(append([]byte{0}, env...), want) {
			found = append(found, p)
		}
	}
	return found
}
