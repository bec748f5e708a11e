package scheduler_test

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the worked examples must not depend on the host's zones

	"runnerd/scheduler"
	"runnerd/task"
)

func parse(t testing.TB, zone, dayMatch string, specs ...string) *scheduler.Schedule {
	t.Helper()
	s, err := scheduler.Parse(task.Schedule{Specs: specs, Zone: zone, DayMatch: dayMatch})
	if err != nil {
		t.Fatalf("Parse(%q, %s): %v", specs, zone, err)
	}
	return s
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestWorkedExamples runs testdata/time.tsv.
func TestWorkedExamples(t *testing.T) {
	file, err := os.Open("testdata/time.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := 0
	for scan := bufio.NewScanner(file); scan.Scan(); {
		if strings.HasPrefix(scan.Text(), "#") || scan.Text() == "" {
			continue
		}
		lines++
		cells := strings.Split(scan.Text(), "\t")
		spec, zone, after, want := cells[0], cells[1], cells[2], cells[3]
		t.Run(spec+" "+zone, func(t *testing.T) {
			s, err := scheduler.Parse(task.Schedule{Specs: []string{spec}, Zone: zone})
			if want == "refused" {
				if err == nil {
					t.Fatal("accepted, want a refusal")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantInstants(t, s, after, want)
		})
	}
	if lines < 15 {
		t.Errorf("only %d worked examples", lines)
	}
}

// wantInstants compares the next instants, written in the schedule's zone.
func wantInstants(t *testing.T, s *scheduler.Schedule, after, want string) {
	t.Helper()
	instants := strings.Fields(want)
	var got []string
	for _, next := range s.List(at(t, after), len(instants)) {
		got = append(got, next.In(s.Zone()).Format(time.RFC3339))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("after %s\n got %s\nwant %s", after, strings.Join(got, " "), want)
	}
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		name, specs, zone, dayMatch, after, want string
	}{
		{"wildcard fold, second pass", "*/15 * * * *", "America/New_York", "", "2026-11-01T01:30:00-04:00",
			"2026-11-01T01:45:00-04:00 2026-11-01T01:00:00-05:00 2026-11-01T01:15:00-05:00"},
		{"wildcard gap", "30 * * * *", "America/New_York", "", "2026-03-08T01:00:00-05:00",
			"2026-03-08T01:30:00-05:00 2026-03-08T03:30:00-04:00"},
		{"a wildcard minute in the gap's hour", "*/30 2 * * *", "Europe/Berlin", "", "2026-03-28T12:00:00+01:00",
			"2026-03-30T02:00:00+02:00 2026-03-30T02:30:00+02:00"},
		{"several fixed times in one gap", "0,15,30 2 * * *", "Europe/Berlin", "", "2026-03-28T12:00:00+01:00",
			"2026-03-29T03:00:00+02:00 2026-03-30T02:00:00+02:00"},
		{"a gap and a time at its end are one", "30 2,3 * * *", "Europe/Berlin", "", "2026-03-28T12:00:00+01:00",
			"2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00 2026-03-30T02:30:00+02:00"},
		{"midnight gap", "0 0 * * *", "America/Santiago", "", "2026-09-05T12:00:00-04:00",
			"2026-09-06T01:00:00-03:00 2026-09-07T00:00:00-03:00"},
		{"@daily in a midnight gap", "@daily", "Africa/Cairo", "", "2026-04-23T12:00:00+02:00",
			"2026-04-24T01:00:00+03:00 2026-04-25T00:00:00+03:00"},
		{"a day that a zone skipped", "0 9 * * *", "Pacific/Apia", "", "2011-12-29T12:00:00-10:00",
			"2011-12-31T00:00:00+14:00 2011-12-31T09:00:00+14:00"},
		{"a half-hour fold", "45 1 * * *", "Australia/Lord_Howe", "", "2026-04-04T12:00:00+11:00",
			"2026-04-05T01:45:00+11:00 2026-04-06T01:45:00+10:30"},
		{"inside the second pass", "30 1 * * *", "America/New_York", "", "2026-11-01T01:10:00-05:00",
			"2026-11-02T01:30:00-05:00"},
		{"between matching seconds", "0 9 * * *", "UTC", "", "2026-01-01T08:59:59.999999999Z",
			"2026-01-01T09:00:00Z"},
		{"strictly after", "0 9 * * *", "UTC", "", "2026-01-01T09:00:00Z", "2026-01-02T09:00:00Z"},
		{"names", "0 9 * jan,Mar MON-fri", "UTC", "", "2026-01-30T10:00:00Z", "2026-03-02T09:00:00Z 2026-03-03T09:00:00Z"},
		{"sat-sun", "0 9 * * sat-sun", "UTC", "", "2026-01-01T00:00:00Z", "2026-01-03T09:00:00Z 2026-01-04T09:00:00Z 2026-01-10T09:00:00Z"},
		{"5-7", "0 9 * * 5-7", "UTC", "", "2026-01-01T00:00:00Z", "2026-01-02T09:00:00Z 2026-01-03T09:00:00Z 2026-01-04T09:00:00Z 2026-01-09T09:00:00Z"},
		{"both days, any", "0 9 13 * fri", "UTC", "any", "2026-02-01T00:00:00Z", "2026-02-06T09:00:00Z 2026-02-13T09:00:00Z"},
		{"both days, all", "0 9 13 * fri", "UTC", "all", "2026-01-01T00:00:00Z", "2026-02-13T09:00:00Z 2026-03-13T09:00:00Z 2026-11-13T09:00:00Z"},
		{"second Monday", "0 9 8-14 * mon", "UTC", "all", "2026-01-01T00:00:00Z", "2026-01-12T09:00:00Z 2026-02-09T09:00:00Z"},
		{"a day field that starts with * restricts nothing", "0 9 */2 * mon", "UTC", "", "2026-01-01T00:00:00Z", "2026-01-05T09:00:00Z 2026-01-19T09:00:00Z"},
		{"question mark", "0 9 ? * mon", "UTC", "", "2026-01-01T00:00:00Z", "2026-01-05T09:00:00Z"},
		{"leap day on a Monday", "0 0 29 2 mon", "UTC", "all", "2026-01-01T00:00:00Z", "2044-02-29T00:00:00Z 2072-02-29T00:00:00Z 2112-02-29T00:00:00Z"},
		{"value with a step", "40/10 9 * * *", "UTC", "", "2026-01-01T00:00:00Z", "2026-01-01T09:40:00Z 2026-01-01T09:50:00Z 2026-01-02T09:40:00Z"},
		{"@hourly passes a fold twice", "@hourly", "Europe/Berlin", "", "2026-10-25T01:30:00+02:00",
			"2026-10-25T02:00:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T03:00:00+01:00"},
		{"@weekly", "@weekly", "UTC", "", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"@monthly", "@monthly", "UTC", "", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"},
		{"@yearly", "@yearly", "UTC", "", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"@annually", "@annually", "UTC", "", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"@midnight", "@midnight", "UTC", "", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"},
		{"interval", "every 15m", "UTC", "", "2026-01-01T00:07:31Z", "2026-01-01T00:15:00Z 2026-01-01T00:30:00Z"},
		{"interval anchored to the epoch", "every 7h", "UTC", "", "1970-01-01T00:00:00Z", "1970-01-01T07:00:00Z 1970-01-01T14:00:00Z"},
		{"interval before the epoch", "every 7h", "UTC", "", "1969-12-31T23:59:59.5Z", "1970-01-01T00:00:00Z 1970-01-01T07:00:00Z"},
		{"interval of a second", "every 1s", "UTC", "", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:01Z 2026-01-01T00:00:02Z"},
		{"at", "at 2026-12-24T18:00", "Europe/Berlin", "", "2026-01-01T00:00:00Z", "2026-12-24T18:00:00+01:00"},
		{"at with seconds", "at 2026-12-24T18:00:30", "UTC", "", "2026-01-01T00:00:00Z", "2026-12-24T18:00:30Z"},
		{"at with an offset", "at 2026-12-24T18:00+05:30", "UTC", "", "2026-01-01T00:00:00Z", "2026-12-24T12:30:00Z"},
		{"at in a gap", "at 2026-03-29T02:30", "Europe/Berlin", "", "2026-01-01T00:00:00Z", "2026-03-29T03:00:00+02:00"},
		{"at in a fold", "at 2026-10-25T02:30", "Europe/Berlin", "", "2026-01-01T00:00:00Z", "2026-10-25T02:30:00+02:00"},
		{"union", "0 9 * * *|every 12h|at 2026-01-01T10:00", "UTC", "", "2026-01-01T00:00:00Z",
			"2026-01-01T09:00:00Z 2026-01-01T10:00:00Z 2026-01-01T12:00:00Z 2026-01-02T00:00:00Z"},
		{"union with a common instant", "0 12 * * *|every 12h", "UTC", "", "2026-01-01T00:00:00Z",
			"2026-01-01T12:00:00Z 2026-01-02T00:00:00Z 2026-01-02T12:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantInstants(t, parse(t, c.zone, c.dayMatch, strings.Split(c.specs, "|")...), c.after, c.want)
		})
	}
}

func TestNextEnds(t *testing.T) {
	once := parse(t, "UTC", "", "at 2026-12-24T18:00")
	if next, ok := once.Next(at(t, "2026-12-24T18:00:00Z")); ok {
		t.Errorf("a single instant came again: %v", next)
	}
	byHand, err := scheduler.Parse(task.Schedule{})
	if err != nil {
		t.Fatal(err)
	}
	if next, ok := byHand.Next(time.Time{}); ok {
		t.Errorf("a schedule without specs has an instant: %v", next)
	}
	daily := parse(t, "Europe/Berlin", "", "0 9 * * *")
	for _, year := range []int{-200000, 0, 10000, 200000000} {
		after := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		if next, ok := daily.Next(after); ok && !next.After(after) {
			t.Errorf("year %d: %v is not after", year, next)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		spec, zone, dayMatch string
		offset               int
		want                 string
	}{
		{"", "UTC", "", 0, "empty"},
		{"   ", "UTC", "", 0, "empty"},
		{"0 9 * *", "UTC", "", 0, "4 fields; expected five"},
		{"0 */6 * * * *", "UTC", "", 12, "six fields"},
		{"TZ=UTC 0 9 * * *", "UTC", "", 0, "use the key timezone"},
		{"CRON_TZ=UTC 0 9 * * *", "UTC", "", 0, "use the key timezone"},
		{"TZ=0", "UTC", "", 0, "use the key timezone"},
		{"0 0 31 4 *", "UTC", "", 4, "never fires"},
		{"0 0 30 feb *", "UTC", "", 4, "never fires"},
		{"0 9 13 * 5", "UTC", "", 4, "day_match: any"},
		{"0 9 L * *", "UTC", "", 4, "L, W and #"},
		{"0 9 15W * *", "UTC", "", 4, "L, W and #"},
		{"0 9 * * 5#2", "UTC", "", 8, "L, W and #"},
		{"0 9 * * 5L", "UTC", "", 8, "L, W and #"},
		{"60 9 * * *", "UTC", "", 0, "60 is not between 0 and 59"},
		{"0 24 * * *", "UTC", "", 2, "24 is not between 0 and 23"},
		{"0 9 0 * *", "UTC", "", 4, "0 is not between 1 and 31"},
		{"0 9 * 13 *", "UTC", "", 6, "13 is not between 1 and 12"},
		{"0 9 * * 8", "UTC", "", 8, "8 is not between 0 and 7"},
		{"0 9 * * mo", "UTC", "", 8, "nor a name such as sun"},
		{"0 nine * * *", "UTC", "", 2, "not a number from 0 to 23"},
		{"0 9-5 * * *", "UTC", "", 2, "runs backwards"},
		{"0 9 * * 7-2", "UTC", "", 8, "runs backwards"},
		{"1,,2 9 * * *", "UTC", "", 2, "empty list item"},
		{"1, 9 * * *", "UTC", "", 2, "empty list item"},
		{"*-5 9 * * *", "UTC", "", 0, "not a number"},
		{"? 9 * * *", "UTC", "", 0, "write *"},
		{"+5 9 * * *", "UTC", "", 0, "not a number"},
		{"1-2-3 9 * * *", "UTC", "", 4, "more than one hyphen"},
		{"1/2/3 9 * * *", "UTC", "", 4, "more than one step"},
		{"*/0 9 * * *", "UTC", "", 2, "not a positive number"},
		{"*/x 9 * * *", "UTC", "", 2, "not a positive number"},
		{"*/90 * * * *", "UTC", "", 2, "write every 90m"},
		{"0 */36 * * *", "UTC", "", 4, "write every 36h"},
		{"99999999999999999999 9 * * *", "UTC", "", 0, "not a number"},
		{"@every 5m", "UTC", "", 0, "without the @"},
		{"@reboot", "UTC", "", 0, "runnerd run"},
		{"@fortnightly", "UTC", "", 0, "unknown word"},
		{"@daily 9", "UTC", "", 7, "nothing may follow"},
		{"every", "UTC", "", 0, "one duration"},
		{"every 5 m", "UTC", "", 0, "one duration"},
		{"every soon", "UTC", "", 6, "not a duration"},
		{"every 1d", "UTC", "", 6, "write every 24h"},
		{"every -5m", "UTC", "", 6, "too short"},
		{"every 0s", "UTC", "", 6, "too short"},
		{"every 999ms", "UTC", "", 6, "too short"},
		{"every 1500ms", "UTC", "", 6, "whole number of seconds"},
		{"every 1000000h", "UTC", "", 6, "never fires"},
		{"at", "UTC", "", 0, "one time"},
		{"at noon", "UTC", "", 3, "not a time"},
		{"at 2026-02-30T18:00", "UTC", "", 3, "not a time"},
		{"at 2026-12-24 18:00", "UTC", "", 0, "one time"},
		{"at 2026-12-24T18:00:00.5", "UTC", "", 3, "not a time"},
		{strings.Repeat("1,", 200) + "1 * * * *", "UTC", "", 256, "longer than"},
		{"0 9 * * *", "", "", 0, "IANA name"},
		{"0 9 * * *", "Local", "", 0, "IANA name"},
		{"0 9 * * *", "europe/berlin", "", 0, "did you mean Europe/Berlin?"},
		{"0 9 * * *", "Berlin", "", 0, "did you mean Europe/Berlin?"},
		{"0 9 * * *", "Europe/Berlim", "", 0, "did you mean Europe/Berlin?"},
		{"0 9 * * *", "New York", "", 0, "did you mean America/New_York?"},
		{"0 9 * * *", "../etc/passwd", "", 0, "unknown zone"},
		{"0 9 * * *", "UTC", "either", 0, "any or all"},
	} {
		t.Run(c.spec+" "+c.zone, func(t *testing.T) {
			_, err := scheduler.Parse(task.Schedule{Specs: []string{c.spec}, Zone: c.zone, DayMatch: c.dayMatch})
			var bad *scheduler.SpecError
			if !errors.As(err, &bad) {
				t.Fatalf("error %v, want a SpecError", err)
			}
			if !strings.Contains(bad.Error(), c.want) || bad.Offset != c.offset {
				t.Errorf("offset %d: %v\nwant offset %d and %q", bad.Offset, bad, c.offset, c.want)
			}
		})
	}
}

func TestParseReportsAllFaults(t *testing.T) {
	_, err := scheduler.Parse(task.Schedule{
		Specs: []string{"0 9 * * *", "0 99 * * *", "every x"}, Zone: "Nowhere", DayMatch: "no",
	})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("error %v is not joined", err)
	}
	var keys []string
	var specs []int
	for _, one := range joined.Unwrap() {
		var bad *scheduler.SpecError
		if !errors.As(one, &bad) {
			t.Fatalf("%v is not a SpecError", one)
		}
		keys, specs = append(keys, bad.Key), append(specs, bad.Spec)
	}
	if strings.Join(keys, " ") != "timezone day_match schedule schedule" ||
		specs[0] != -1 || specs[1] != -1 || specs[2] != 1 || specs[3] != 2 {
		t.Errorf("faults in %v of specs %v", keys, specs)
	}
	many := make([]string, 101)
	for i := range many {
		many[i] = "@daily"
	}
	if _, err := scheduler.Parse(task.Schedule{Specs: many, Zone: "UTC"}); err == nil {
		t.Error("101 specs were accepted")
	}
}

func TestRevision(t *testing.T) {
	base := task.Schedule{Specs: []string{"0 9 * * *", "@daily"}, Zone: "UTC"}
	same := task.Schedule{Specs: []string{"@daily", " 0  9 * *\t*"}, Zone: "UTC"}
	if scheduler.Revision(base) != scheduler.Revision(same) {
		t.Error("order and blanks change the revision")
	}
	if got := parse(t, "UTC", "", base.Specs...).Revision(); got != scheduler.Revision(base) {
		t.Errorf("parsed revision %s, want %s", got, scheduler.Revision(base))
	}
	for name, other := range map[string]task.Schedule{
		"spec":      {Specs: []string{"0 9 * * *"}, Zone: "UTC"},
		"zone":      {Specs: base.Specs, Zone: "Europe/Berlin"},
		"day_match": {Specs: base.Specs, Zone: "UTC", DayMatch: "any"},
	} {
		if scheduler.Revision(other) == scheduler.Revision(base) {
			t.Errorf("another %s has the same revision", name)
		}
	}
}
