package procgroup

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is one process as /proc showed it. Together with its start time a pid
// names a process for good, which a pid alone does not.
type process struct {
	pid, parent int
	start       string // in clock ticks since boot
	zombie      bool
}

// readProcess reads /proc/PID/stat. The name in it may hold anything, so the
// fields are counted from its closing parenthesis.
func readProcess(pid int) (process, bool) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, false
	}
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return process{}, false
	}
	fields := strings.Fields(string(data[end+1:]))
	if len(fields) < 20 {
		return process{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	return process{pid: pid, parent: parent, start: fields[19], zombie: fields[0] == "Z"}, err == nil
}

// processes lists all processes that /proc shows.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			all = append(all, p)
		}
	}
	return all
}

// descendants lists the living processes below root, parents first.
func descendants(root int) []process {
	children := map[int][]process{}
	for _, p := range processes() {
		children[p.parent] = append(children[p.parent], p)
	}
	var found []process
	seen := map[int]bool{root: true}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, p := range children[queue[0]] {
			if seen[p.pid] {
				continue
			}
			seen[p.pid] = true
			queue = append(queue, p.pid)
			if !p.zombie {
				found = append(found, p)
			}
		}
	}
	return found
}

// signal sends sig to exactly that process: the descriptor is opened first and
// the start time compared after, so that a pid which was given to another
// process in between is left alone.
func (p process) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if now, ok := readProcess(p.pid); ok && now.start == p.start {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

// killAll ends what list shows until it shows nothing or the deadline passes.
// Stopping first keeps a tree that forks all the time from outrunning us.
func killAll(list func() []process, deadline time.Time) bool {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		found := list()
		if len(found) == 0 {
			return true
		}
		for _, p := range found {
			p.signal(unix.SIGSTOP)
		}
		for _, p := range found {
			p.signal(unix.SIGKILL)
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(wait)
	}
}
