package connector

import (
	"time"

	"go.uber.org/zap"
)

// Sweep ends what an earlier daemon on the same state directory left behind: its
// guards end their trees when it dies, but a guard can be killed too. It must be
// called only by who holds the lock on the state directory, before the first
// use of the pool. It returns how many processes it found.
func (p *Pool) Sweep() int {
	if p.opts.StateDir == "" {
		return 0
	}
	left := marked(p.markPrefix())
	if len(left) == 0 {
		return 0
	}
	p.log.Warn("ending processes that an earlier daemon left behind", zap.Int("processes", len(left)))
	if !killAll(func() []process { return marked(p.markPrefix()) }, time.Now().Add(killDeadline)) {
		p.log.Error("some processes of an earlier daemon cannot be killed")
	}
	return len(left)
}
