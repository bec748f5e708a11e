package procgroup

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// work sums up the processor time of one process, its ended children's included,
// and the bytes that it read and wrote.
func work(pid int) (sum uint64) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if end := bytes.LastIndexByte(data, ')'); err == nil && end >= 0 {
		fields := strings.Fields(string(data[end+1:]))
		for i := 11; i < 15 && i < len(fields); i++ { // utime, stime, cutime, cstime
			sum += number(fields[i])
		}
	}
	data, err = os.ReadFile(filepath.Join(dir, "io")) // not where the kernel forbids it
	if err != nil {
		return sum
	}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name == "rchar" || name == "wchar" {
			sum += number(value)
		}
	}
	return sum
}

func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
