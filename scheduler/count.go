package scheduler

import (
	"math/bits"
	"time"
)

// maxWalk is where counting one by one ends, for schedules that join intervals with
// other specs. The count of more is a lower bound.
const maxWalk = 2000

// count is the number of instants in (from, to]. It takes no longer for forty years
// of minutes than some milliseconds: days are counted, not walked through.
func (s *Schedule) count(from, to time.Time) int {
	var lines []*cronLine
	var single []time.Time
	least := 0
	for _, r := range s.rules {
		switch r := r.(type) {
		case *cronLine:
			lines = append(lines, r)
		case instant:
			single = append(single, r.at)
		case interval:
			if least = max(least, r.count(from, to)); len(s.rules) == 1 {
				return least
			}
		}
	}
	if len(lines)+len(single) < len(s.rules) {
		return max(least, countLines(lines, from, to, s.zone), s.walk(from, to))
	}
	n := countLines(lines, from, to, s.zone)
	rest := &Schedule{zone: s.zone}
	for _, line := range lines {
		rest.rules = append(rest.rules, line)
	}
	for _, at := range single { // each once, and only where nothing else has it
		next, ok := rest.Next(at.Add(-1))
		if at.After(from) && !at.After(to) && !(ok && next.Equal(at)) {
			n++
		}
		rest.rules = append(rest.rules, instant{at})
	}
	return n
}

// walk counts the instants in (from, to] up to maxWalk.
func (s *Schedule) walk(from, to time.Time) (n int) {
	for next, ok := s.Next(from); ok && !next.After(to) && n < maxWalk; next, ok = s.Next(next) {
		n++
	}
	return n
}

// countLines counts the instants in (from, to] at which any of the lines fires. In a
// stretch with one offset these are the wall times that match; times that the wall
// has shown before do not count again for fixed lines, and those that it jumped
// over count as one, where it went on (DESIGN, section 8).
func countLines(lines []*cronLine, from, to time.Time, zone *time.Location) (n int) {
	if len(lines) == 0 {
		return 0
	}
	latest := shown(from, zone)
	for at := from.Add(1); !at.After(to); {
		here := segmentAt(at, zone)
		stop := to.Add(1)
		if !here.end.IsZero() && here.end.Before(stop) {
			stop = here.end
		}
		start := here.wall(at)
		w := walls{start: minuteFrom(start), fresh: max(minuteFrom(start), minuteFrom(latest.Add(1))), end: minuteFrom(here.wall(stop))}
		n += w.count(lines)
		jumped := walls{start: w.start, fresh: minuteFrom(latest.Add(1)), end: minuteFrom(start)}
		if jumped.fresh < jumped.end && jumped.fixed(lines) && (start.Truncate(time.Minute) != start || !w.first(lines)) {
			n++
		}
		if shownLast := here.wall(stop.Add(-1)); shownLast.After(latest) {
			latest = shownLast
		}
		at = stop
	}
	return n
}

const dayMinutes = 24 * 60

// minuteFrom is the number of the first whole minute at or after a wall time, from
// 1970 on.
func minuteFrom(w time.Time) int {
	minute := w.Unix() / 60
	if w.Unix()%60 < 0 {
		minute--
	}
	if w.Second() > 0 || w.Nanosecond() > 0 {
		minute++
	}
	return int(minute)
}

// walls are the minutes of a wall clock from start up to, but not including, end;
// fixed lines match from fresh on only.
type walls struct{ start, fresh, end int }

// minutes are the minutes of a day, 60 bits an hour.
type minutes [24]uint64

// count is the number of minutes that any of the lines matches.
func (w walls) count(lines []*cronLine) (n int) {
	for day := floorDay(w.start); day*dayMinutes < w.end; day++ {
		var set minutes
		for _, line := range lines {
			from := w.start
			if !line.wildcard {
				from = w.fresh
			}
			set.join(line, day, from, w.end)
		}
		for _, hour := range set {
			n += bits.OnesCount64(hour)
		}
	}
	return n
}

// fixed tells whether a fixed line matches a minute from fresh on.
func (w walls) fixed(lines []*cronLine) bool {
	for _, line := range lines {
		if !line.wildcard && (walls{start: w.fresh, fresh: w.fresh, end: w.end}).count([]*cronLine{line}) > 0 {
			return true
		}
	}
	return false
}

// first tells whether any line matches the first minute.
func (w walls) first(lines []*cronLine) bool {
	return walls{start: w.start, fresh: w.fresh, end: min(w.start+1, w.end)}.count(lines) > 0
}

func floorDay(minute int) int {
	day := minute / dayMinutes
	if minute%dayMinutes < 0 {
		day--
	}
	return day
}

// join adds the minutes of a day, in [from, end), that a line matches.
func (m *minutes) join(c *cronLine, day, from, end int) {
	at := time.Unix(int64(day)*dayMinutes*60, 0).UTC()
	_, month, date := at.Date()
	if c.fields.Month>>uint(month)&1 == 0 || !c.day(date, int(at.Weekday())) {
		return
	}
	from, end = max(0, from-day*dayMinutes), min(dayMinutes, end-day*dayMinutes)
	for hour := from / 60; hour*60 < end; hour++ {
		if c.fields.Hour>>uint(hour)&1 == 0 {
			continue
		}
		set := c.fields.Minute & (1<<60 - 1)
		if first := from - hour*60; first > 0 {
			set = set >> uint(first) << uint(first)
		}
		if rest := end - hour*60; rest < 60 {
			set &= 1<<uint(rest) - 1
		}
		m[hour] |= set
	}
}
