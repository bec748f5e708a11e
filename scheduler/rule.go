package scheduler

import (
	"strings"
	"time"
)

// rule is one parsed spec. next is the first instant strictly after the given
// one, in UTC.
type rule interface {
	next(after time.Time, zone *time.Location) (time.Time, bool)
}

// maxSpec is the longest spec in bytes.
const maxSpec = 256

// The @ words and the lines that they stand for.
var descriptors = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

// parseRule reads one spec. zone may be nil, where it is at fault itself: what
// needs no zone is then still checked.
func parseRule(text string, zone *time.Location, dayMatch string) (rule, *SpecError) {
	if len(text) > maxSpec {
		return nil, fault(maxSpec, "longer than %d bytes; write several schedules as a list", maxSpec)
	}
	parts := words(text)
	if len(parts) == 0 {
		return nil, fault(0, "empty; expected five fields, @daily, every 15m or at 2026-12-24T18:00")
	}
	first := parts[0]
	switch {
	case first.text == "every":
		return parseInterval(parts)
	case first.text == "at":
		return parseInstant(parts, zone)
	case strings.HasPrefix(first.text, "@"):
		return parseDescriptor(parts, dayMatch)
	case strings.HasPrefix(first.text, "TZ="), strings.HasPrefix(first.text, "CRON_TZ="):
		return nil, fault(first.offset, "a zone does not go into the line; use the key timezone")
	case len(parts) == 6:
		return nil, fault(parts[5].offset, "six fields; cron lines here have five, without seconds; for seconds write every 30s")
	case len(parts) != 5:
		return nil, fault(first.offset, "%d fields; expected five (minute, hour, day of month, month, day of week), "+
			"@daily, every 15m or at 2026-12-24T18:00", len(parts))
	}
	line, bad := parseCron(parts, dayMatch)
	if bad != nil {
		return nil, bad
	}
	return line, nil
}

func parseDescriptor(parts []word, dayMatch string) (rule, *SpecError) {
	name := parts[0]
	switch line, known := descriptors[name.text]; {
	case known && len(parts) > 1:
		return nil, fault(parts[1].offset, "nothing may follow %s", name.text)
	case known:
		return parseCron(words(line), dayMatch)
	case name.text == "@every":
		return nil, fault(name.offset, "write every 15m, without the @")
	case name.text == "@reboot":
		return nil, fault(name.offset, "@reboot is not a time; start a task by hand with runnerd run")
	}
	return nil, fault(name.offset, "unknown word %s; expected @hourly, @daily, @weekly, @monthly or @yearly", name.text)
}

// readsZone tells whether the instants of a spec depend on the zone: those of
// intervals, and of times with an offset of their own, do not.
func readsZone(text string) bool {
	parts := words(text)
	switch {
	case len(parts) != 2:
		return true
	case parts[0].text == "at":
		_, ok := withOffset(parts[1].text)
		return !ok
	}
	return parts[0].text != "every"
}

// interval fires at the multiples of a whole number of seconds since the Unix
// epoch, so that a restart does not shift it.
type interval struct{ seconds int64 }

func parseInterval(parts []word) (rule, *SpecError) {
	if len(parts) != 2 {
		return nil, fault(parts[0].offset, "expected one duration after every, such as every 15m or every 1h30m")
	}
	text := parts[1]
	length, err := time.ParseDuration(text.text)
	switch {
	case err != nil && strings.HasSuffix(text.text, "d"):
		return nil, fault(text.offset, "%q: days are no unit here; write every 24h, which falls on 00:00 UTC, or @daily", text.text)
	case err != nil:
		return nil, fault(text.offset, "%q is not a duration such as 30s, 15m or 1h30m", text.text)
	case length < time.Second:
		return nil, fault(text.offset, "%s is too short; the shortest interval is 1s", text.text)
	case length%time.Second != 0:
		return nil, fault(text.offset, "%s is not a whole number of seconds", text.text)
	case length > maxYears*365*24*time.Hour:
		return nil, fault(text.offset, "%s never fires within %d years", text.text, maxYears)
	}
	return interval{int64(length / time.Second)}, nil
}

func (i interval) next(after time.Time, _ *time.Location) (time.Time, bool) {
	n := after.Unix() / i.seconds
	if after.Unix()%i.seconds < 0 {
		n--
	}
	return time.Unix((n+1)*i.seconds, 0).UTC(), true
}

// count is the number of multiples in (from, to].
func (i interval) count(from, to time.Time) int {
	first, _ := i.next(from, nil)
	if first.After(to) {
		return 0
	}
	return int((to.Unix()-first.Unix())/i.seconds) + 1
}

// instant fires once.
type instant struct{ at time.Time }

// The forms of an instant, without and with an offset of its own.
var (
	localForms  = []string{"2006-01-02T15:04", "2006-01-02T15:04:05"}
	offsetForms = []string{"2006-01-02T15:04Z07:00", "2006-01-02T15:04:05Z07:00"}
)

func parseInstant(parts []word, zone *time.Location) (rule, *SpecError) {
	if len(parts) != 2 {
		return nil, fault(parts[0].offset, "expected one time after at, such as at 2026-12-24T18:00")
	}
	text := parts[1]
	if t, ok := withOffset(text.text); ok {
		return instant{t}, nil
	}
	for _, form := range localForms {
		if w, err := time.Parse(form, text.text); err == nil && w.Nanosecond() == 0 {
			if zone == nil {
				zone = time.UTC
			}
			return instant{reached(w, zone)}, nil
		}
	}
	return nil, fault(text.offset, "%q is not a time such as 2026-12-24T18:00, 2026-12-24T18:00:30 or 2026-12-24T18:00+01:00", text.text)
}

// withOffset reads a time that has an offset of its own.
func withOffset(text string) (time.Time, bool) {
	for _, form := range offsetForms {
		if t, err := time.Parse(form, text); err == nil && t.Nanosecond() == 0 {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

func (i instant) next(after time.Time, _ *time.Location) (time.Time, bool) {
	return i.at, i.at.After(after)
}
