package connector

import (
	"os"
	"strconv"
	"strings"

	"runnerd/procgroup"
)

// marked lists the living processes that a pool started, and all that came of them.
func marked(p *Pool) []int {
	var found []int
	for _, pid := range pids() {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err == nil && pid != os.Getpid() && strings.Contains("\x00"+string(env), "\x00"+procgroup.MarkVar+"="+p.starter.Mark) && parentOf(pid) > 0 {
			found = append(found, pid)
		}
	}
	return found
}

func pids() []int {
	entries, _ := os.ReadDir("/proc")
	var all []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// parentOf is the parent of a living process, 0 of a dead one.
func parentOf(pid int) int {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if err != nil || len(fields) < 2 || fields[0] == "Z" {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

func childrenOf(parent int) []int {
	var found []int
	for _, pid := range pids() {
		if parentOf(pid) == parent {
			found = append(found, pid)
		}
	}
	return found
}

// guardOf is the guard of the one connector's server, and the server.
func guardOf(p *Pool) (guard, server int) {
	c, err := p.conn("x")
	if err != nil {
		return 0, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	server = c.session.child.proc.PID()
	return parentOf(server), server
}
