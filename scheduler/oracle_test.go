package scheduler_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"runnerd/scheduler"
	"runnerd/task"
)

var long = flag.Bool("long", false, "run the whole of the slow tests")

// The oracle knows nothing of segments or transitions. It looks at every minute
// of UTC, writes down what the wall clock shows, and applies the rule's words.

// oracleLine is a cron line in the oracle's own reading.
type oracleLine struct {
	minutes, hours, days, months, weekdays map[int]bool
	wildcard, either                       bool
}

func oracleSet(field string, low, high int) map[int]bool {
	set := map[int]bool{}
	for item := range strings.SplitSeq(field, ",") {
		text, stepText, stepped := strings.Cut(item, "/")
		step, from, to := 1, low, high
		if stepped {
			step, _ = strconv.Atoi(stepText)
		}
		if text != "*" {
			first, last, ranged := strings.Cut(text, "-")
			from, _ = strconv.Atoi(first)
			to = from
			if ranged {
				to, _ = strconv.Atoi(last)
			} else if stepped {
				to = high
			}
		}
		for v := from; v <= to; v += step {
			set[v] = true
		}
	}
	return set
}

func oracleParse(spec, dayMatch string) oracleLine {
	f := strings.Fields(spec)
	line := oracleLine{
		minutes: oracleSet(f[0], 0, 59), hours: oracleSet(f[1], 0, 23), days: oracleSet(f[2], 1, 31),
		months: oracleSet(f[3], 1, 12), weekdays: oracleSet(f[4], 0, 6),
		wildcard: strings.HasPrefix(f[0], "*") || strings.HasPrefix(f[1], "*"),
		either:   dayMatch == "any" && !strings.HasPrefix(f[2], "*") && !strings.HasPrefix(f[4], "*"),
	}
	return line
}

func (l oracleLine) match(w time.Time) bool {
	if !l.minutes[w.Minute()] || !l.hours[w.Hour()] || !l.months[int(w.Month())] {
		return false
	}
	day, weekday := l.days[w.Day()], l.weekdays[int(w.Weekday())]
	return day && weekday || l.either && (day || weekday)
}

// shownAt is a minute of UTC and what the wall shows at it.
type shownAt struct{ instant, wall time.Time }

func oracleMinutes(zone *time.Location, from, to time.Time) []shownAt {
	var minutes []shownAt
	for t := from; t.Before(to); t = t.Add(time.Minute) {
		l := t.In(zone)
		minutes = append(minutes, shownAt{t, time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), 0, time.UTC)})
	}
	return minutes
}

// instants are those of a line in the scanned minutes. firstShown says for each
// wall minute when it was first shown.
func (l oracleLine) instants(minutes []shownAt, firstShown map[time.Time]time.Time) []time.Time {
	var out []time.Time
	if l.wildcard {
		for _, m := range minutes {
			if l.match(m.wall) {
				out = append(out, m.instant)
			}
		}
		return out
	}
	for w := minutes[0].wall; !w.After(minutes[len(minutes)-1].wall); w = w.Add(time.Minute) {
		if !l.match(w) {
			continue
		}
		instant, exists := firstShown[w]
		if !exists {
			// In a gap: the first instant at which the wall shows a later time.
			at := slices.IndexFunc(minutes, func(m shownAt) bool { return m.wall.After(w) })
			instant = minutes[at].instant
		}
		out = append(out, instant)
	}
	slices.SortFunc(out, time.Time.Compare)
	return slices.CompactFunc(out, time.Time.Equal)
}

var oracleSpecs = []struct{ spec, dayMatch string }{
	{"* * * * *", ""},
	{"*/15 * * * *", ""},
	{"30 2 * * *", ""},
	{"0 0 * * *", ""},
	{"30 1 * * *", ""},
	{"0 9 * * 6", ""},
	{"45 23 * * *", ""},
	{"0,20,40 0-3 * * *", ""},
	{"15 */2 * * 0", ""},
	{"* 2 * * *", ""},
	{"*/20 0-2 * * *", ""},
	{"10-50/7 2-23/4 * 3-11 *", ""},
	{"5 1 1-7 * 0", "all"},
	{"30 2 1-15 * 0", "any"},
	{"0 0 * * 1-5", ""},
}

// transitions are the instants at which a zone's offset changes, found by
// asking for the offset every quarter of an hour between days that differ.
func transitions(zone *time.Location, from, to time.Time) []time.Time {
	offset := func(t time.Time) int {
		_, o := t.In(zone).Zone()
		return o
	}
	var found []time.Time
	for day := from; day.Before(to); day = day.Add(24 * time.Hour) {
		if offset(day) == offset(day.Add(24*time.Hour)) {
			continue
		}
		for t := day; t.Before(day.Add(24 * time.Hour)); t = t.Add(15 * time.Minute) {
			if offset(t) != offset(t.Add(15*time.Minute)) {
				found = append(found, t.Add(15*time.Minute))
			}
		}
	}
	return found
}

func allZones(t testing.TB) []string {
	t.Helper()
	data, err := os.ReadFile("../task/zones.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// TestNextAgainstOracle compares Next with the oracle around the transitions of
// every zone from 2020 to 2035: a sample in a normal run, all of them with
// -long, and then up to 2049, past the years that the zone files list.
func TestNextAgainstOracle(t *testing.T) {
	from := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	to := time.Date(2036, 1, 1, 0, 0, 0, 0, time.UTC)
	names := allZones(t)
	if *long {
		to = time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC)
	} else {
		names = slices.DeleteFunc(names, func(name string) bool { return len(name)%9 != 0 && name != "Australia/Lord_Howe" })
	}
	done := map[string]bool{} // by what makes a window differ: many zones are alike
	windows := 0
	for _, name := range names {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Logf("zone %s is not known here", name)
			continue
		}
		for _, change := range transitions(zone, from, to) {
			key := fmt.Sprint(change.Unix(), change.Add(-time.Minute).In(zone).Format("-0700"), change.In(zone).Format("-0700"))
			if done[key] {
				continue
			}
			done[key] = true
			if windows++; *long || windows%20 == 0 {
				compareWindow(t, zone, change)
			}
		}
	}
	if windows < 100 {
		t.Errorf("only %d transitions found", windows)
	}
}

// compareWindow compares two days around a transition. The oracle looks one day
// farther to both sides, so that its edges do not show.
func compareWindow(t *testing.T, zone *time.Location, change time.Time) {
	t.Helper()
	from, to := change.Add(-30*time.Hour), change.Add(30*time.Hour)
	minutes := oracleMinutes(zone, from.Add(-30*time.Hour), to.Add(30*time.Hour))
	firstShown := map[time.Time]time.Time{}
	for _, m := range minutes {
		if _, seen := firstShown[m.wall]; !seen {
			firstShown[m.wall] = m.instant
		}
	}
	for _, c := range oracleSpecs {
		var want []time.Time
		for _, instant := range oracleParse(c.spec, c.dayMatch).instants(minutes, firstShown) {
			if instant.After(from) && !instant.After(to) {
				want = append(want, instant)
			}
		}
		s, err := scheduler.Parse(task.Schedule{Specs: []string{c.spec}, Zone: zone.String(), DayMatch: c.dayMatch})
		if err != nil {
			t.Fatal(err)
		}
		var got []time.Time
		for next, ok := s.Next(from); ok && !next.After(to); next, ok = s.Next(next) {
			got = append(got, next)
		}
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Errorf("%s in %s around %s:\n got %v\nwant %v", c.spec, zone, change.In(zone), got, want)
		}
	}
}

// TestLastDayOfLeapYear is for the years past those that zone files list, where
// the library's own bounds of a zone's offset are wrong on one day.
func TestLastDayOfLeapYear(t *testing.T) {
	s := parse(t, "Europe/Berlin", "", "0 0 1 1 *", "*/30 0 31 12 *", "0 12 31 12 *")
	wantInstants(t, s, "2040-12-31T00:00:00+01:00",
		"2040-12-31T00:30:00+01:00 2040-12-31T12:00:00+01:00 2041-01-01T00:00:00+01:00 2041-12-31T00:00:00+01:00")
}

func FuzzParseNext(f *testing.F) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe",
		"Africa/Cairo", "America/Nuuk", "Pacific/Apia", "Africa/Casablanca", "Asia/Kathmandu", "America/Anchorage", "Asia/Manila"}
	for i, spec := range []string{"30 2 * * *", "*/15 * * * *", "0 9 13 * 5", "@daily", "every 90m", "at 2026-12-24T18:00",
		"0 0 29 2 *", "TZ=0", "59 23 31 12 7", "* * 29 2 1", "0 0 31 4 *", "1-5/2,7 0-3 ? jan-dec sat-sun"} {
		f.Add(spec, uint8(i), int64(1_700_000_000+i*86400), i%3 == 0)
	}
	f.Fuzz(func(t *testing.T, spec string, zone uint8, after int64, all bool) {
		dayMatch := "any"
		if all {
			dayMatch = "all"
		}
		began := time.Now()
		s, err := scheduler.Parse(task.Schedule{Specs: []string{spec}, Zone: zones[int(zone)%len(zones)], DayMatch: dayMatch})
		if err != nil {
			return
		}
		from := time.Unix(after, 0)
		for range 20 {
			next, ok := s.Next(from)
			if !ok {
				break
			}
			if !next.After(from) {
				t.Fatalf("%q after %v: %v is not later", spec, from, next)
			}
			if between, ok := s.Next(next.Add(-1)); !ok || !between.Equal(next) {
				t.Fatalf("%q: next of just before %v is %v", spec, next, between)
			}
			from = next
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Fatalf("%q took %v", spec, took)
		}
	})
}

func BenchmarkNext(b *testing.B) {
	for _, c := range []struct{ name, spec, zone, dayMatch string }{
		{"daily", "30 7 * * 1-5", "Europe/Berlin", ""},
		{"wildcard", "*/15 * * * *", "America/New_York", ""},
		{"minutely UTC", "* * * * *", "UTC", ""},
		{"leap Monday", "0 0 29 2 1", "Europe/Berlin", "all"},
		{"wildcard in one month", "*/5 * 29 2 *", "America/Santiago", ""},
		{"interval", "every 15m", "UTC", ""},
		{"at", "at 2099-01-01T00:00", "UTC", ""},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := parse(b, c.zone, c.dayMatch, c.spec)
			from := at(b, "2026-03-01T00:00:00Z")
			for i := 0; b.Loop(); i++ {
				s.Next(from.Add(time.Duration(i%100000) * time.Minute))
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		parse(b, "Europe/Berlin", "", "30 7 * * 1-5")
	}
}
