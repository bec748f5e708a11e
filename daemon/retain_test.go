package daemon

import (
	"testing"
	"time"
)

// TestRetainByNeed (U21): history that is kept for a short time, or that grows fast,
// is pruned often; the rest once an hour.
func TestRetainByNeed(t *testing.T) {
	for _, c := range []struct {
		name      string
		age       time.Duration
		perMinute int // rows that become old
		most      int // rows past their age at any time
		rounds    int // in a day, at most
	}{
		{"U21 five minutes", 5 * time.Minute, 20_000, 20_000, 24 * 60 * 6},
		{"U21 an hour", time.Hour, 1000, 6000, 1000},
		{"U21 ninety days, quiet", 90 * 24 * time.Hour, 5, 300, 30},
		{"U21 ninety days, busy", 90 * 24 * time.Hour, 5000, 30_000, 24 * 120},
		{"U21 by number alone, busy", 0, 5000, 30_000, 24 * 120},
		{"U21 by number alone, quiet", 0, 1, 60, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			pause, rounds, most := retainFirst, 0, 0
			for at := time.Duration(0); at < 24*time.Hour; rounds++ {
				pause = min(pause, retainLongest(c.age))
				at += pause
				removed := int(int64(c.perMinute) * int64(pause) / int64(time.Minute))
				most = max(most, removed)
				pause = retainPause(pause, removed)
			}
			if most > c.most || rounds > c.rounds {
				t.Errorf("%d rows waited, %d rounds a day; want at most %d and %d", most, rounds, c.most, c.rounds)
			}
		})
	}
}
