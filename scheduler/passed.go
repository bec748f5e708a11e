package scheduler

import "time"

// maxRows is how many passed instants of a task get rows of their own at once;
// what is older shares one range row.
const maxRows = 1000

// maxCount is where counting a range's instants one by one ends. The count of a
// longer range (four years of a minutely task) is a lower bound.
const maxCount = 2_000_000

// passed are the instants of a schedule in a stretch of time: the newest ones
// listed, oldest first, and the older ones counted.
type passed struct {
	newest      []time.Time
	older       int
	first, last time.Time // of the older ones
}

// passed collects the instants in (from, to], listing the newest keep.
func (s *Schedule) passed(from, to time.Time, keep int) passed {
	first, ok := s.Next(from)
	if !ok || first.After(to) {
		return passed{}
	}
	from = first.Add(-1) // skip what holds nothing
	var list []time.Time
	for span := time.Hour; ; span *= 2 {
		start := to.Add(-span)
		if start.Before(from) || span > maxYears*366*24*time.Hour {
			start = from
		}
		list = s.between(start, to)
		if len(list) > keep || !start.After(from) {
			break
		}
	}
	if len(list) <= keep {
		return passed{newest: list}
	}
	cut := len(list) - keep
	p := passed{newest: list[cut:], first: first, last: list[cut-1]}
	p.older = s.count(from, p.last)
	return p
}

// between lists the instants in (from, to].
func (s *Schedule) between(from, to time.Time) []time.Time {
	var list []time.Time
	for next, ok := s.Next(from); ok && !next.After(to); next, ok = s.Next(next) {
		list = append(list, next)
	}
	return list
}

// count is the number of instants in (from, to].
func (s *Schedule) count(from, to time.Time) int {
	if len(s.rules) == 1 {
		if every, ok := s.rules[0].(interval); ok {
			return every.count(from, to)
		}
	}
	n := 0
	for next, ok := s.Next(from); ok && !next.After(to) && n < maxCount; next, ok = s.Next(next) {
		n++
	}
	return n
}
