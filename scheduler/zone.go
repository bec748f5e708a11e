package scheduler

import (
	"time"

	"runnerd/task"
)

// Wall times are kept as time.Time values in UTC whose clock reads what a clock
// on the wall would; instants are real. Where a zone is involved, wall(t) is
// what the wall shows at the instant t.

// maxShift is more than any two offsets of a zone can lie apart, so that what a
// wall showed longer ago than this cannot matter.
const maxShift = 48 * time.Hour

// segment is a stretch of instants with one offset. A zero start or end is
// open.
type segment struct {
	start, end time.Time
	offset     time.Duration
}

// segmentAt is the segment around t, which may be shorter than the whole
// stretch. Past a zone's last listed transition ZoneBounds counts 365 days to
// every year, so that on the last day of a leap year its end is not after t
// (Go 1.26); the day's own ends then do, since no zone changes there.
func segmentAt(t time.Time, zone *time.Location) segment {
	local := t.In(zone)
	start, end := local.ZoneBounds()
	day := t.UTC().Truncate(24 * time.Hour)
	if start.After(t) {
		start = day
	}
	if !end.IsZero() && !end.After(t) {
		end = day.Add(24 * time.Hour)
	}
	_, offset := local.Zone()
	return segment{start: start, end: end, offset: time.Duration(offset) * time.Second}
}

func (s segment) wall(t time.Time) time.Time    { return t.UTC().Add(s.offset) }
func (s segment) instant(w time.Time) time.Time { return w.Add(-s.offset) }

// holds tells whether t lies before the segment's end.
func (s segment) holds(t time.Time) bool { return s.end.IsZero() || t.Before(s.end) }

// shown is the latest wall time that the zone's clocks have shown at any
// instant up to t. In and after a fold that is more than what they show at t.
func shown(t time.Time, zone *time.Location) time.Time {
	here := segmentAt(t, zone)
	latest := here.wall(t)
	for at := here; !at.start.IsZero() && t.Sub(at.start) < maxShift; {
		before := at.start.Add(-1)
		at = segmentAt(before, zone)
		if w := at.wall(before); w.After(latest) {
			latest = w
		}
	}
	return latest
}

// reached is the first instant at which the zone's clocks show w or later: w
// itself where it exists, the first of two in a fold, the end of the gap that
// holds it otherwise.
func reached(w time.Time, zone *time.Location) time.Time {
	from := w.Add(-maxShift)
	for {
		at := segmentAt(from, zone)
		t := at.instant(w)
		if t.Before(from) {
			t = from
		}
		if at.holds(t) {
			return t.UTC()
		}
		from = at.end
	}
}

// loadZone is task.LoadZone with the place of the fault.
func loadZone(name string) (*time.Location, *SpecError) {
	zone, err := task.LoadZone(name)
	if err != nil {
		return nil, &SpecError{Spec: -1, Key: "timezone", Text: name, Reason: err.Error()}
	}
	return zone, nil
}
