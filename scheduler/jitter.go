package scheduler

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Jitter is how long after its due instant a task's run starts at the earliest:
// the same for a task on a host each time, from 0 up to and including most, in
// whole milliseconds. It spreads the runs of many tasks and many hosts.
func Jitter(taskID, host string, most time.Duration) time.Duration {
	steps := uint64(max(most, 0) / time.Millisecond)
	sum := sha256.Sum256([]byte(taskID + "\x00" + host))
	return time.Duration(binary.BigEndian.Uint64(sum[:8])%(steps+1)) * time.Millisecond
}
