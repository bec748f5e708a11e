package connector

import "time"

// trouble counts failures in a row and says how long to leave a connector
// alone. The first failure costs nothing, so that one crash does not fail a run;
// from the second on the wait doubles; at Limits.Failures the breaker opens. A
// failure is an open that did not work or a session that died young without
// having answered a call.
type trouble struct {
	failures int
	until    time.Time
	broken   bool // the breaker opened and nothing has worked since
}

// failed counts a failure and tells whether it opened the breaker anew, which is
// when people are told.
func (t *trouble) failed(now time.Time, l Limits) (opened bool) {
	t.failures++
	switch {
	case t.failures >= l.Failures:
		t.until = now.Add(l.Breaker)
		opened = !t.broken
		t.broken = true
	case t.failures >= 2:
		t.until = now.Add(min(l.Backoff<<min(t.failures-2, 20), l.Breaker))
	}
	return opened
}

// worked forgets all failures and tells whether the breaker had been open.
func (t *trouble) worked() (recovered bool) {
	recovered = t.broken
	*t = trouble{}
	return recovered
}

// wait is how long to leave the connector alone from now on.
func (t *trouble) wait(now time.Time) time.Duration { return max(0, t.until.Sub(now)) }

// brokenUntil is when the open breaker lets the next try through; zero if it is
// not open.
func (t *trouble) brokenUntil(now time.Time) time.Time {
	if t.broken && t.until.After(now) {
		return t.until
	}
	return time.Time{}
}
