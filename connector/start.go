package connector

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"
)

// installers are commands that may first fetch the server that they are to start.
var installers = []string{"npx", "npm", "pnpm", "pnpx", "yarn", "bunx", "bun", "uvx", "uv", "pipx", "deno", "docker", "podman"}

// installs tells whether the connector's command may have to install its server.
func (c *conn) installs() bool {
	return c.spec.URL == "" && slices.Contains(installers, filepath.Base(c.spec.Command))
}

// glance is how often a server that may be installing is looked at.
const glance = 250 * time.Millisecond

// start is how long one may take: limit, and for a command that installs
// its server limit from the last time that anything moved in it, up to most.
type start struct {
	limit, most time.Duration
	work        func() uint64 // grows while something moves; nil: nothing is looked at
	slow        func()        // called once when limit alone would have been over
}

// wait returns a context that ends with the patience; its cause is then a
// deadline.
func (p start) wait(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.work == nil {
		return context.WithTimeout(ctx, p.limit)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		cancel(p.watch(ctx))
	}()
	return ctx, func() { cancel(context.Canceled); <-stopped }
}

// watch returns once ctx ends or the patience does, with the reason.
func (p start) watch(ctx context.Context) error {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	begun := time.Now()
	moved, before, slow := begun, uint64(0), false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		now := time.Now()
		if work := p.work(); work != before {
			moved, before = now, work
		}
		switch {
		case now.Sub(begun) >= p.most:
			return advise("install the package on this host and name its command instead",
				"the command was busy for %s and no server answered: %w", p.most, context.DeadlineExceeded)
		case now.Sub(moved) >= p.limit:
			return context.DeadlineExceeded
		case !slow && now.Sub(begun) >= p.limit:
			slow = true
			p.slow()
		}
	}
}

// startWithin is how long the connector is waited for, given what limit is otherwise.
func (c *conn) startWithin(limit time.Duration) start {
	p := start{limit: limit, most: max(limit, c.pool.limits.Install)}
	if c.installs() {
		p.work = func() uint64 {
			if ch := c.starting.Load(); ch != nil {
				return ch.proc.Work()
			}
			return 0
		}
		p.slow = func() {
			c.log.Info("its command is still at work, as if it installed the server; it is left to it",
				zap.Duration("most", c.pool.limits.Install))
		}
	}
	return p
}
