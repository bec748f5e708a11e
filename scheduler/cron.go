package scheduler

import (
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Values of task.Schedule.DayMatch.
const (
	dayMatchAny = "any"
	dayMatchAll = "all"
)

// maxYears bounds every search: a schedule without an instant in so many years
// counts as one that never fires.
const maxYears = 40

// cronLine is a spec of five fields. Its sets come from robfig/cron; which of
// them must match, and what a zone does to them, is decided here.
type cronLine struct {
	fields *cron.SpecSchedule
	// either: both day fields are restricted and one of them is enough.
	either bool
	// wildcard: the minute or the hour field starts with *, so that the line
	// counts hours as they pass rather than times of day (DESIGN, section 8).
	wildcard bool
}

// cronField is what one of the five fields may hold.
type cronField struct {
	name     string
	min, max int
	names    string // three letters each, the first standing for min
	blank    bool   // may ? stand for *?
}

var cronFields = [5]cronField{
	{name: "minute", min: 0, max: 59},
	{name: "hour", min: 0, max: 23},
	{name: "day of month", min: 1, max: 31, blank: true},
	{name: "month", min: 1, max: 12, names: "janfebmaraprmayjunjulaugsepoctnovdec"},
	{name: "day of week", min: 0, max: 7, names: "sunmontuewedthufrisat", blank: true},
}

var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// parseCron reads five fields. Each is checked here first, because cron/v3
// accepts much that nobody means: empty list items, *-5, steps that never come.
func parseCron(fields []word, dayMatch string) (*cronLine, *SpecError) {
	parts := make([]string, len(fields))
	for i, field := range fields {
		text, bad := cronFields[i].normal(field)
		if bad != nil {
			return nil, bad
		}
		parts[i] = text
	}
	parsed, err := cronParser.Parse(strings.Join(parts, " "))
	if err != nil {
		return nil, fault(fields[0].offset, "%v", err)
	}
	line := &cronLine{
		fields:   parsed.(*cron.SpecSchedule),
		wildcard: parts[0][0] == '*' || parts[1][0] == '*',
	}
	if restricted(parts[2]) && restricted(parts[4]) {
		switch dayMatch {
		case dayMatchAny:
			line.either = true
		case dayMatchAll:
		default:
			return nil, fault(fields[2].offset, "both day fields are restricted: "+
				"say day_match: any (one of the two is enough) or day_match: all (both must match)")
		}
	}
	if _, ok := line.from(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); !ok {
		return nil, fault(fields[2].offset, "never fires: no such date in %d years; check day of month, month and day of week", maxYears)
	}
	return line, nil
}

func restricted(field string) bool { return field[0] != '*' && field[0] != '?' }

// normal checks a field and returns it as cron/v3 understands it: names as
// numbers, Sunday as 0.
func (f cronField) normal(field word) (string, *SpecError) {
	var out []string
	for _, item := range field.split(",") {
		text, bad := f.item(item)
		if bad != nil {
			return "", bad
		}
		out = append(out, text)
	}
	return strings.Join(out, ","), nil
}

// item checks one part of a list: a value, a range, or *, each with an optional
// step.
func (f cronField) item(item word) (string, *SpecError) {
	if item.text == "" {
		return "", fault(item.offset, "%s: empty list item; remove the comma", f.name)
	}
	halves := item.split("/")
	if len(halves) > 2 {
		return "", fault(halves[2].offset, "%s: more than one step in %q", f.name, item.text)
	}
	step := 0
	if len(halves) == 2 {
		var bad *SpecError
		if step, bad = f.step(halves[1], item.text); bad != nil {
			return "", bad
		}
	}
	text := halves[0].text
	if text == "*" || text == "?" && f.blank {
		if step > 0 {
			text += "/" + strconv.Itoa(step)
		}
		return text, nil
	}
	low, high, bad := f.ends(halves[0], step)
	if bad != nil {
		return "", bad
	}
	return f.written(low, high, max(step, 1)), nil
}

// step reads what follows a slash. A step past the end of the field would fire
// at its first value only, which is not what anyone means by */90.
func (f cronField) step(text word, item string) (int, *SpecError) {
	step, ok := digits(text.text)
	switch {
	case !ok || step == 0:
		return 0, fault(text.offset, "%s: the step in %q is not a positive number", f.name, item)
	case step > f.last() && f.name == "minute":
		return 0, fault(text.offset, "minute: a step of %d is never reached within an hour; write every %dm", step, step)
	case step > f.last() && f.name == "hour":
		return 0, fault(text.offset, "hour: a step of %d is never reached within a day; write every %dh", step, step)
	case step > f.last():
		return 0, fault(text.offset, "%s: a step of %d goes past the largest value, %d", f.name, step, f.last())
	}
	return step, nil
}

// ends reads a value or a range. As in cron/v3, a value with a step runs to the
// end of the field.
func (f cronField) ends(text word, step int) (low, high int, bad *SpecError) {
	sides := text.split("-")
	if len(sides) > 2 {
		return 0, 0, fault(sides[2].offset, "%s: more than one hyphen in %q", f.name, text.text)
	}
	if low, bad = f.value(sides[0]); bad != nil {
		return 0, 0, bad
	}
	high = low
	if len(sides) == 2 {
		if high, bad = f.value(sides[1]); bad != nil {
			return 0, 0, bad
		}
		if f.max == 7 && high == 0 && low > 0 {
			high = 7 // sat-sun
		}
	} else if step > 0 {
		high = min(f.max, f.last())
	}
	if low > high {
		return 0, 0, fault(text.offset, "%s: %q runs backwards; write two items, such as %d-%d,%d-%d",
			f.name, text.text, low, f.last(), f.min, high)
	}
	return low, high, nil
}

// last is the largest value that is not another name for the smallest.
func (f cronField) last() int {
	if f.max == 7 {
		return 6
	}
	return f.max
}

// value reads a number or a name.
func (f cronField) value(text word) (int, *SpecError) {
	if at := strings.Index(f.names, strings.ToLower(text.text)); len(text.text) == 3 && at >= 0 && at%3 == 0 {
		return at/3 + f.min, nil
	}
	n, ok := digits(text.text)
	switch {
	case text.text == "?":
		return 0, fault(text.offset, "%s: ? stands for a day field only; write *", f.name)
	case !ok && f.foreign(text.text):
		return 0, fault(text.offset, "%s: L, W and # are not part of cron's five fields; list the days, "+
			"such as 8-14 with mon and day_match: all for a second Monday", f.name)
	case !ok && f.names != "":
		return 0, fault(text.offset, "%s: %q is neither a number from %d to %d nor a name such as %s", f.name, text.text, f.min, f.max, f.names[:3])
	case !ok:
		return 0, fault(text.offset, "%s: %q is not a number from %d to %d", f.name, text.text, f.min, f.max)
	case n < f.min || n > f.max:
		return 0, fault(text.offset, "%s: %d is not between %d and %d", f.name, n, f.min, f.max)
	}
	return n, nil
}

// foreign tells whether a value uses the day notation of other schedulers.
func (f cronField) foreign(text string) bool {
	return f.blank && (strings.Contains(text, "#") || strings.HasPrefix(text, "L") ||
		strings.HasSuffix(text, "L") || strings.HasSuffix(text, "W"))
}

// written spells a range for cron/v3, which does not know a 7th weekday.
func (f cronField) written(low, high, step int) string {
	if high < 7 || f.max != 7 {
		return strconv.Itoa(low) + "-" + strconv.Itoa(high) + "/" + strconv.Itoa(step)
	}
	var days []string
	for day := low; day <= high; day += step {
		days = append(days, strconv.Itoa(day%7))
	}
	return strings.Join(days, ",")
}

// digits reads a plain number of at most six digits.
func digits(text string) (int, bool) {
	if text == "" || len(text) > 6 {
		return 0, false
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

// next implements rule.
func (c *cronLine) next(after time.Time, zone *time.Location) (time.Time, bool) {
	if c.wildcard {
		return c.nextPassing(after, zone)
	}
	w, ok := c.from(shown(after, zone).Add(1))
	if !ok {
		return time.Time{}, false
	}
	return reached(w, zone), true
}

// nextPassing is next for a wildcard line: a time that the wall shows twice
// counts twice, one that it never shows not at all.
func (c *cronLine) nextPassing(after time.Time, zone *time.Location) (time.Time, bool) {
	limit := after.AddDate(maxYears, 0, 0)
	for at := after.Add(1); at.Before(limit); {
		here := segmentAt(at, zone)
		w, ok := c.from(here.wall(at))
		if !ok {
			return time.Time{}, false
		}
		if t := here.instant(w); here.holds(t) {
			return t.UTC(), true
		}
		at = here.end
	}
	return time.Time{}, false
}

// from is the first wall time at or after w that the fields match; ok is false
// if there is none in maxYears.
func (c *cronLine) from(w time.Time) (time.Time, bool) {
	year, month, day := w.Date()
	hour, minute, second := w.Clock()
	start := hour*60 + minute
	if second > 0 || w.Nanosecond() > 0 {
		start++
	}
	for last := year + maxYears; year <= last; month, day, start = month+1, 1, 0 {
		if month > 12 {
			year, month = year+1, 1
		}
		if c.fields.Month>>uint(month)&1 == 0 {
			continue
		}
		for first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).Weekday(); day <= daysIn(year, month); day, start = day+1, 0 {
			if !c.day(day, (int(first)+day-1)%7) {
				continue
			}
			if m, ok := c.minuteFrom(start); ok {
				return time.Date(year, month, day, m/60, m%60, 0, 0, time.UTC), true
			}
		}
	}
	return time.Time{}, false
}

func (c *cronLine) day(day, weekday int) bool {
	dom := c.fields.Dom>>uint(day)&1 == 1
	dow := c.fields.Dow>>uint(weekday)&1 == 1
	if c.either {
		return dom || dow
	}
	return dom && dow
}

// minuteFrom is the first matching minute of the day at or after start.
func (c *cronLine) minuteFrom(start int) (int, bool) {
	const day, hourBits, minuteBits = 24 * 60, 1<<24 - 1, 1<<60 - 1
	if start >= day {
		return 0, false
	}
	hour := start / 60
	if c.fields.Hour>>uint(hour)&1 == 1 {
		if rest := c.fields.Minute & minuteBits >> uint(start%60); rest != 0 {
			return start + bits.TrailingZeros64(rest), true
		}
	}
	later := c.fields.Hour & hourBits >> uint(hour+1)
	if later == 0 {
		return 0, false
	}
	hour += 1 + bits.TrailingZeros64(later)
	return hour*60 + bits.TrailingZeros64(c.fields.Minute&minuteBits), true
}

func daysIn(year int, month time.Month) int {
	switch month {
	case time.April, time.June, time.September, time.November:
		return 30
	case time.February:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}
