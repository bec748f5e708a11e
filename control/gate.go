package control

import "sync"

// gate counts the handlers that are under way and lets none in once it is shut.
type gate struct {
	mu     sync.Mutex
	inside int
	closed bool
	empty  chan struct{}
}

func newGate() *gate { return &gate{empty: make(chan struct{})} }

// enter tells whether the handler may run; it must then leave.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.closed && g.inside == 0 {
		close(g.empty)
	}
}

// shut lets nobody in any more; the channel is closed when nobody is inside. It is
// called once.
func (g *gate) shut() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.inside == 0 {
		close(g.empty)
	}
	return g.empty
}
