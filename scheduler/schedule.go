package scheduler

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"runnerd/task"
)

// maxSpecs is the largest number of specs in one schedule.
const maxSpecs = 100

// Schedule is a parsed task.Schedule: the union of the instants of its specs.
// It does not change after Parse and may be used by several goroutines.
type Schedule struct {
	rules    []rule
	zone     *time.Location
	revision string
	zoned    string // as earlier versions named it
}

// Parse reads a schedule (DESIGN, section 8). One without specs is valid and has
// no instants: its task runs only by hand. An error joins a *SpecError for each
// fault.
func Parse(source task.Schedule) (*Schedule, error) {
	s := &Schedule{revision: Revision(source), zoned: zonedRevision(source)}
	var faults []error
	if len(source.Specs) > 0 {
		zone, bad := loadZone(source.Zone)
		if bad != nil {
			faults = append(faults, bad)
		}
		s.zone = zone
	}
	switch source.DayMatch {
	case "", dayMatchAny, dayMatchAll:
	default:
		faults = append(faults, &SpecError{
			Spec: -1, Key: "day_match", Text: source.DayMatch, Reason: "expected any or all",
		})
	}
	if len(source.Specs) > maxSpecs {
		bad := fault(0, "more than %d schedules in one task; split the task", maxSpecs)
		bad.Spec, bad.Text = maxSpecs, source.Specs[maxSpecs]
		return nil, errors.Join(append(faults, bad)...)
	}
	for i, text := range source.Specs {
		r, bad := parseRule(text, s.zone, source.DayMatch)
		if bad != nil {
			bad.Spec, bad.Text = i, clip(text)
			faults = append(faults, bad)
			continue
		}
		s.rules = append(s.rules, r)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return s, nil
}

func clip(text string) string {
	if len(text) > maxSpec {
		return text[:maxSpec] + "…"
	}
	return text
}

// Revision names what a schedule says: a hash of its specs (in any order, spaces
// between fields not counting), zone and day_match. The zone counts only where a
// spec reads it: an interval falls on the same instants in every zone. It is part
// of an occurrence's identity, and needs no valid schedule.
func Revision(source task.Schedule) string {
	if !slices.ContainsFunc(source.Specs, readsZone) {
		source.Zone = ""
	}
	return zonedRevision(source)
}

// zonedRevision counts the zone in any case, as every revision did once: databases
// hold such ones.
func zonedRevision(source task.Schedule) string {
	specs := make([]string, 0, len(source.Specs))
	for _, text := range source.Specs {
		specs = append(specs, strings.Join(strings.Fields(text), " "))
	}
	slices.Sort(specs)
	data, err := json.Marshal([]any{slices.Compact(specs), source.Zone, source.DayMatch})
	if err != nil {
		// Strings always marshal; should that change, the texts themselves will do.
		data = []byte(strings.Join(specs, "\x00"))
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// Revision is the revision of what was parsed.
func (s *Schedule) Revision() string { return s.revision }

// named tells whether a stored revision is the schedule's.
func (s *Schedule) named(revision string) bool { return revision == s.revision || revision == s.zoned }

// Zone is the schedule's own zone; UTC for one without specs.
func (s *Schedule) Zone() *time.Location {
	if s.zone == nil {
		return time.UTC
	}
	return s.zone
}

// maxYear is the last year in which Next looks; it answers nothing after it.
const maxYear = 9999

// Next is the first instant strictly after the given one, in UTC. ok is false
// where there is none within 40 years.
func (s *Schedule) Next(after time.Time) (next time.Time, ok bool) {
	if len(s.rules) == 0 || after.Year() > maxYear {
		return time.Time{}, false
	}
	if after.Year() < 1 {
		after = time.Time{}
	}
	for _, r := range s.rules {
		t, found := r.next(after, s.zone)
		if found && (!ok || t.Before(next)) {
			next, ok = t, true
		}
	}
	return next, ok
}

// List returns up to n instants strictly after the given one.
func (s *Schedule) List(after time.Time, n int) []time.Time {
	var instants []time.Time
	for len(instants) < n {
		next, ok := s.Next(after)
		if !ok {
			break
		}
		instants = append(instants, next)
		after = next
	}
	return instants
}

// once returns the schedule's single instants up to and including now, oldest
// first.
func (s *Schedule) once(now time.Time) []time.Time {
	var instants []time.Time
	for _, r := range s.rules {
		if i, single := r.(instant); single && !i.at.After(now) {
			instants = append(instants, i.at)
		}
	}
	slices.SortFunc(instants, time.Time.Compare)
	return slices.CompactFunc(instants, time.Time.Equal)
}
