package scheduler

import "time"

// maxRows is how many passed instants of a task get rows of their own at once;
// what is older shares range rows.
const maxRows = 1000

// passed are the instants of a schedule in a stretch of time: the newest ones
// listed, oldest first, and the older ones counted.
type passed struct {
	newest []time.Time
	older  []stretch
}

// stretch is a number of instants from first to last.
type stretch struct {
	first, last time.Time
	count       int
}

// passed collects the instants in (from, to] that are not among those that ran,
// listing the newest maxRows. The older ones are one stretch, or several where some
// between them ran.
func (s *Schedule) passed(from, to time.Time, ran []time.Time) passed {
	list := without(s.newest(from, to, maxRows+len(ran)), ran)
	if len(list) <= maxRows {
		return passed{newest: list}
	}
	cut := len(list) - maxRows
	p := passed{newest: list[cut:]}
	for _, t := range ran {
		if t.After(from) && !t.After(list[cut-1]) {
			p.add(s, from, t.Add(-1))
			from = t
		}
	}
	p.add(s, from, list[cut-1])
	return p
}

// add adds the instants in (from, to] as one stretch, if there are any.
func (p *passed) add(s *Schedule, from, to time.Time) {
	first, ok := s.Next(from)
	if !ok || first.After(to) {
		return
	}
	last, _ := s.last(from, to)
	p.older = append(p.older, stretch{first: first, last: last, count: s.count(from, last)})
}

// without leaves out the instants that ran.
func without(list, ran []time.Time) []time.Time {
	if len(ran) == 0 {
		return list
	}
	gone := make(map[int64]bool, len(ran))
	for _, t := range ran {
		gone[t.UnixNano()] = true
	}
	var kept []time.Time
	for _, t := range list {
		if !gone[t.UnixNano()] {
			kept = append(kept, t)
		}
	}
	return kept
}

// last is the newest instant in (from, to].
func (s *Schedule) last(from, to time.Time) (time.Time, bool) {
	list := s.newest(from, to, 1)
	if len(list) == 0 {
		return time.Time{}, false
	}
	return list[len(list)-1], true
}

// newest lists the instants in (from, to], oldest first; where there are more than
// keep, the newest of them, more than keep in number.
func (s *Schedule) newest(from, to time.Time, keep int) (list []time.Time) {
	first, ok := s.Next(from)
	if !ok || first.After(to) {
		return nil
	}
	from = first.Add(-1) // skip what holds nothing
	for span := time.Hour; ; span *= 2 {
		start := to.Add(-span)
		if start.Before(from) || span > maxYears*366*24*time.Hour {
			start = from
		}
		list = s.between(start, to)
		if len(list) > keep || !start.After(from) {
			return list
		}
	}
}

// between lists the instants in (from, to].
func (s *Schedule) between(from, to time.Time) []time.Time {
	var list []time.Time
	for next, ok := s.Next(from); ok && !next.After(to); next, ok = s.Next(next) {
		list = append(list, next)
	}
	return list
}
