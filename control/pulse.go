package control

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

// The store is looked at this often while somebody listens, less often where it
// tells of its changes, and never more often than minPoll.
const (
	pollAlone = 250 * time.Millisecond
	pollTold  = 2 * time.Second
	minPoll   = 100 * time.Millisecond
)

func pollTime(told bool) time.Duration {
	if told {
		return pollTold
	}
	return pollAlone
}

// pulse wakes every event stream when something new was stored, however many there
// are, at the cost of one small query.
type pulse struct {
	mu        sync.Mutex
	more      chan struct{} // closed at the next event
	last      int64
	listeners int
	first     chan struct{} // tells the beat that somebody listens again
}

func newPulse() *pulse {
	return &pulse{more: make(chan struct{}), first: make(chan struct{}, 1)}
}

func (p *pulse) join() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listeners++; p.listeners == 1 {
		select {
		case p.first <- struct{}{}:
		default:
		}
	}
}

func (p *pulse) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners--
}

func (p *pulse) listened() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listeners > 0
}

// next answers a channel that is closed when there is more than the event upto.
func (p *pulse) next() (more <-chan struct{}, upto int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.more, p.last
}

func (p *pulse) seen(last int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last != p.last {
		p.last = last
		close(p.more)
		p.more = make(chan struct{})
	}
}

// beat looks for new events until ctx ends.
func (s *Server) beat(ctx context.Context) {
	changed := s.o.Changed
	timer := time.NewTimer(s.poll)
	defer timer.Stop()
	for {
		var tick <-chan time.Time
		if s.pulse.listened() {
			timer.Reset(s.poll)
			tick = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case _, open := <-changed:
			if !open {
				changed = nil
			}
		case <-s.pulse.first:
		case <-tick:
		}
		if !s.pulse.listened() {
			continue
		}
		last, err := s.o.Main.LastEvent(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("newest event not read", zap.Error(err))
		}
		if err == nil {
			s.pulse.seen(last)
		}
		if !pauseFor(ctx, min(minPoll, s.poll)) {
			return
		}
	}
}

// pauseFor waits; it is false if ctx ended meanwhile.
func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
