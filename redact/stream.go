package redact

import (
	"errors"
	"io"
	"sync"
)

// cutter replaces patterns in a text that comes in chunks. Matches that overlap
// become one, named after the longest, so that nothing of either is left.
type cutter struct {
	held []byte // not decided yet: it may be the beginning of a pattern

	// The match that was found last and is not written yet. Its end is relative
	// to held; while it lies behind the position that is decided next, a further
	// match may make it longer.
	found *pattern
	end   int
}

// feed decides what can be decided of held and chunk, and appends it to out.
func (c *cutter) feed(out []byte, x *index, chunk []byte) []byte {
	c.held = append(c.held, chunk...)
	return c.decide(out, x, false)
}

// finish decides the rest: nothing follows.
func (c *cutter) finish(out []byte, x *index) []byte {
	out = c.decide(out, x, true)
	return c.settle(out, c.end)
}

func (c *cutter) decide(out []byte, x *index, last bool) []byte {
	done, i := 0, 0 // held[:done] is written or part of a match
	if c.found != nil {
		done = min(c.end, len(c.held))
	}
	for ; x != nil && i < len(c.held); i++ {
		if !x.may(c.held, i) {
			continue
		}
		if !last && len(c.held)-i < x.longest && x.begins(c.held[i:]) {
			break
		}
		p := x.match(c.held[i:], false)
		if p == nil {
			continue
		}
		if c.found != nil && i >= c.end {
			out = c.settle(out, i)
		}
		if done < i {
			out = append(out, c.held[done:i]...)
		}
		c.extend(p, i+len(p.text))
		done = c.end
	}
	if x == nil {
		i = len(c.held)
	}
	out = c.settle(out, i)
	if done < i {
		out = append(out, c.held[done:i]...)
	}
	c.held = append(c.held[:0], c.held[i:]...)
	c.end -= i
	return out
}

// extend makes the pending match reach to end, or begins one.
func (c *cutter) extend(p *pattern, end int) {
	if c.found == nil {
		c.found, c.end = p, end
		return
	}
	if len(p.text) > len(c.found.text) {
		c.found = p
	}
	c.end = max(c.end, end)
}

// settle writes the pending match if it ends at or before next.
func (c *cutter) settle(out []byte, next int) []byte {
	if c.found == nil || c.end > next {
		return out
	}
	out = append(out, "[redacted:"+c.found.name+"]"...)
	c.found = nil
	return out
}

// Writer returns a writer that passes on to w what is written to it, without
// secrets, also where one is split over several writes. Text that may be the
// beginning of a secret is held back until more comes; Close writes what is
// left and does not close w. The secrets are those known at each write.
func (s *Set) Writer(w io.Writer) io.WriteCloser { return &writer{set: s, w: w} }

// writer is safe for concurrent use, as the log and the ring of a child are.
type writer struct {
	set *Set
	w   io.Writer

	mu     sync.Mutex
	cut    cutter
	out    []byte
	err    error
	closed bool
}

var errClosed = errors.New("write redacted: writer is closed")

// Write reports len(p) once p is taken, though some of it may still be held. An
// error of w is kept and comes back from every later call.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, errClosed
	}
	if w.err != nil {
		return 0, w.err
	}
	w.out = w.cut.feed(w.out[:0], w.set.load(), p)
	if err := w.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w.err
	}
	w.closed = true
	if w.err != nil {
		return w.err
	}
	w.out = w.cut.finish(w.out[:0], w.set.load())
	return w.flush()
}

func (w *writer) flush() error {
	if len(w.out) == 0 {
		return nil
	}
	_, w.err = w.w.Write(w.out)
	return w.err
}
