package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"runnerd/control"
	"runnerd/daemon"
	"runnerd/db"
	"runnerd/scheduler"
	"runnerd/task"
	"runnerd/text"
)

type tasksCmd struct {
	JSON bool `help:"Print JSON."`
}

func (c tasksCmd) Run(ctx context.Context, a *app) error {
	rows, err := c.rows(ctx, a)
	if err != nil {
		return remote(err)
	}
	if c.JSON {
		return writeJSON(a.out, rows)
	}
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	text.Fprintf(w, "TASK\tSCHEDULE\tNEXT\tLAST\n")
	for _, r := range rows {
		text.Fprintf(w, "%s\t%s\t%s\t%s\n", r.ID, strings.Join(r.Schedule, ", "), nextText(r), orNone(string(r.LastStatus)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Error != "" {
			text.Fprintf(a.out, "%s: %s\n", r.ID, r.Error)
		}
	}
	return nil
}

// rows asks the daemon, or looks at the files itself if none runs.
func (tasksCmd) rows(ctx context.Context, a *app) ([]control.TaskRow, error) {
	if client := a.live(ctx); client != nil {
		return client.Tasks(ctx)
	}
	i, err := a.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	return a.taskRows(ctx, i)
}

// nextText says when a task is due next, or why it is not.
func nextText(r control.TaskRow) string {
	switch {
	case r.Error != "":
		return "FILE BROKEN: see below"
	case !r.Enabled:
		return "disabled"
	case r.Paused:
		return "paused"
	case r.Next != nil:
		return localTime(*r.Next, r.Timezone)
	case len(r.Schedule) > 0:
		return "over: every instant has passed"
	}
	return "by hand"
}

func localTime(t time.Time, zone string) string {
	if z, err := time.LoadLocation(zone); err == nil {
		t = t.In(z)
	}
	return t.Format("Mon 2006-01-02 15:04:05 -07:00")
}

// taskRows is every task, the broken ones too, with what last became of them.
func (a *app) taskRows(ctx context.Context, i *daemon.Inspection) ([]control.TaskRow, error) {
	list := daemon.TaskRows(i.Set, func(id string) (time.Time, bool) {
		next, err := daemon.Upcoming(i.Set.Tasks[id].Task, time.Now(), 1)
		if err != nil || len(next) == 0 {
			return time.Time{}, false
		}
		return next[0], true
	})
	return list, a.Reading(ctx, func(main *db.DB) error {
		last, err := main.LastRuns(ctx)
		pauses, perr := main.Pauses(ctx)
		control.FillTasks(list, last, pauses)
		return errors.Join(err, perr)
	})
}

type runsCmd struct {
	Task   string    `help:"Of one task." placeholder:"TASK"`
	Status []string  `help:"With this status: ok, failed, denied …; several with commas between." placeholder:"STATUS"`
	Since  time.Time `help:"Due since this instant, or for so long." placeholder:"RFC3339|24h"`
	Limit  int       `short:"n" help:"How many." default:"100"`
	JSON   bool      `help:"Print JSON."`
}

// find asks for runs, page by page, until enough of them are what is looked for.
func (c runsCmd) find(page func(limit int, before string) ([]control.RunRow, error)) ([]control.RunRow, error) {
	found, before := []control.RunRow{}, ""
	for {
		rows, err := page(min(max(c.Limit, 1), 1000), before)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			before = r.ID
			old := !c.Since.IsZero() && r.Due != nil && r.Due.Before(c.Since)
			if len(found) < c.Limit && !old && (len(c.Status) == 0 || slices.Contains(c.Status, string(r.Status))) {
				found = append(found, r)
			}
		}
		if len(rows) < min(max(c.Limit, 1), 1000) || len(found) >= c.Limit {
			return found, nil
		}
	}
}

// known refuses a status that no run can have.
func (c runsCmd) known() error {
	all := []string{}
	for _, s := range task.Statuses() {
		all = append(all, string(s))
	}
	for _, s := range c.Status {
		if !slices.Contains(all, s) {
			return usage("--status %s: expected one of %s", s, strings.Join(all, ", "))
		}
	}
	if c.Limit < 1 {
		return usage("-n %d: expected 1 or more", c.Limit)
	}
	return nil
}

// rows reads the runs, or asks the daemon for them.
func (c runsCmd) rows(ctx context.Context, a *app) (runs []control.RunRow, err error) {
	runs = []control.RunRow{}
	err = a.Reading(ctx, func(main *db.DB) (err error) {
		runs, err = c.find(func(limit int, before string) ([]control.RunRow, error) {
			list, err := main.Runs(ctx, db.RunFilter{Task: c.Task, Limit: limit, Before: before})
			return control.NewRunRows(list), err
		})
		return err
	})
	if client := a.instead(ctx, err); client != nil {
		runs, err = c.find(func(limit int, before string) ([]control.RunRow, error) {
			return client.Runs(ctx, c.Task, limit, before)
		})
	}
	return runs, err
}

func (c runsCmd) Run(ctx context.Context, a *app) error {
	if err := c.known(); err != nil {
		return err
	}
	runs, err := c.rows(ctx, a)
	if err != nil {
		return remote(err)
	}
	if c.Task != "" && len(runs) == 0 { // of a retired task there may be some
		if i, err := a.Inspect(ctx); err == nil {
			if _, err := i.Task(c.Task); err != nil && !i.Broken(c.Task) {
				return err
			}
		}
	}
	if c.JSON {
		return writeJSON(a.out, runs)
	}
	zones := a.zones(ctx)
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	text.Fprintf(w, "RUN\tTASK\tDUE\tTRIGGER\tSTATUS\tTOKENS\tREASON\n")
	for _, r := range runs {
		text.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", r.ID, r.Task, dayAndTime(r.Due, zones(r.Task)), startedBy(r), r.Status, orZero(r.Tokens), oneLine(r.Reason, 90))
	}
	return w.Flush()
}

// startedBy is what started a run, or that it is a rehearsal.
func startedBy(r control.RunRow) string {
	if slices.Contains(r.Marks, task.MarkRehearsal) {
		return "rehearsal"
	}
	return string(r.Trigger)
}

// dayAndTime shows an instant in a zone, with the offset, so that it cannot be taken
// for another.
func dayAndTime(t *time.Time, zone *time.Location) string {
	if t == nil {
		return "-"
	}
	return t.In(zone).Format("2006-01-02 15:04:05 -07:00")
}

// zones tells the zone of a task, by which all that is shown of its runs goes. A task
// that is not there any more has the daemon's.
func (a *app) zones(ctx context.Context) func(id string) *time.Location {
	own := a.ownZone()
	rows, err := tasksCmd{}.rows(ctx, a)
	if err != nil {
		return func(string) *time.Location { return own }
	}
	return func(id string) *time.Location {
		i, ok := slices.BinarySearchFunc(rows, id, func(r control.TaskRow, id string) int { return strings.Compare(r.ID, id) })
		if ok && rows[i].Timezone != "" {
			if zone, err := time.LoadLocation(rows[i].Timezone); err == nil {
				return zone
			}
		}
		return own
	}
}

func orZero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

type showCmd struct {
	Run_  string `arg:"" name:"run" optional:"" default:"last" help:"Run id, or its beginning; last, or a task for its last one."`
	JSON  bool   `help:"Print JSON."`
	Short bool   `help:"Cut long texts."`
}

// last puts the id of the newest run in place of "last" or of a task's name.
func (c *showCmd) last(ctx context.Context, a *app) error {
	id := taskName(c.Run_)
	if c.Run_ == "last" {
		id = ""
	} else if rows, err := (tasksCmd{}).rows(ctx, a); err != nil || !slices.ContainsFunc(rows, func(r control.TaskRow) bool { return r.ID == id }) {
		return nil // a run's id, or what noRun says of it
	}
	rows, err := runsCmd{Task: id, Limit: 1}.rows(ctx, a)
	switch {
	case err != nil:
		return remote(err)
	case len(rows) > 0:
		c.Run_ = rows[0].ID
	case id == "":
		return usage("there is no run to show: nothing has run yet")
	default:
		return usage("task %s has not run yet; `runnerd run %s` runs it", id, id)
	}
	return nil
}

func (c showCmd) Run(ctx context.Context, a *app) error {
	if err := c.last(ctx, a); err != nil {
		return err
	}
	main, err := a.OpenMain(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return usage("there is no run %s: nothing has run yet", c.Run_)
	}
	if client := a.instead(ctx, err); client != nil {
		v, err := client.Run(ctx, c.Run_)
		if err != nil {
			return noRun(c.Run_, err)
		}
		return c.print(ctx, a, v)
	}
	if err != nil {
		return err
	}
	return errors.Join(c.show(ctx, a, main), main.Close())
}

func (c showCmd) show(ctx context.Context, a *app, main *db.DB) error {
	run, err := main.FindRun(ctx, c.Run_)
	if err != nil {
		return noRun(c.Run_, err)
	}
	msgs, err := main.RunMessages(ctx, run.ID)
	if err != nil {
		return err
	}
	receipts, err := main.RunReceipts(ctx, run.ID)
	if err != nil {
		return err
	}
	if err := c.print(ctx, a, control.NewRunView(run, msgs, receipts)); err != nil || c.JSON {
		return err
	}
	return printDeliveries(ctx, a, main, run)
}

func (c showCmd) print(ctx context.Context, a *app, v control.RunView) error {
	if c.JSON {
		return writeJSON(a.out, v)
	}
	zone := a.zones(ctx)(v.Run.Task)
	p := newPrinter(a.out, zone)
	p.whole = !c.Short
	run, msgs, receipts := v.Run, v.Messages, []task.Receipt{}
	for _, r := range v.Receipts {
		receipts = append(receipts, receiptOf(r))
	}
	text.Fprintf(a.out, "run %s of task %s, %s", run.ID, run.Task, startedBy(run))
	if run.Trigger != task.TriggerManual && run.Due != nil {
		text.Fprintf(a.out, ", due %s", dayAndTime(run.Due, zone))
	}
	text.Fprintf(a.out, ", attempt %d; times are of %s, %s\n\n", run.Attempt, zone, dayAndTime(cmp.Or(run.StartedAt, run.Due), zone))
	p.Messages(msgs, receipts)
	for _, rc := range receipts {
		if rc.Decision == task.DecisionPark && !answered(msgs, rc) {
			p.receipt(rc)
		}
	}
	text.Fprintf(a.out, "\n")
	p.endRow(run)
	return nil
}

// answered tells whether a receipt's call has its answer, beside which the receipt
// was shown.
func answered(msgs []task.Message, rc task.Receipt) bool {
	return slices.ContainsFunc(msgs, func(m task.Message) bool {
		return m.Role == task.RoleTool && m.Step == rc.Step && m.CallID == rc.CallID
	})
}

// noRun says that an id, or its beginning, names no run or several; any other
// error stays what it is.
func noRun(id string, err error) error {
	var told *control.Error
	switch {
	case errors.Is(err, db.ErrAmbiguous):
		return usage("%q is the beginning of more than one run; `runnerd runs` lists them", id)
	case errors.Is(err, db.ErrNotFound), errors.As(err, &told) && told.Status == http.StatusNotFound:
		return usage("there is no run %s; `runnerd runs` lists them", id)
	}
	return remote(err)
}

type whyCmd struct {
	Task  string    `arg:"" help:"Task."`
	At    time.Time `help:"About this instant." placeholder:"RFC3339"`
	Since time.Time `help:"About every instant since, or for so long." placeholder:"RFC3339|24h"`
	Limit int       `short:"n" help:"How many, the newest first." default:"100"`
	JSON  bool      `help:"Print JSON."`
}

func (c whyCmd) Run(ctx context.Context, a *app) error {
	list := []task.Occurrence{}
	err := a.Reading(ctx, func(main *db.DB) (err error) {
		if !c.At.IsZero() {
			o, err := main.OccurrenceAt(ctx, c.Task, c.At)
			if errors.Is(err, db.ErrNotFound) {
				return nil
			}
			list = append(list, o)
			return err
		}
		list, err = main.Occurrences(ctx, db.OccurrenceFilter{Task: c.Task, Since: c.Since, Limit: c.Limit})
		return err
	})
	rows := control.NewWhyRows(list)
	if client := a.instead(ctx, err); client != nil {
		rows, err = client.Why(ctx, c.Task, c.At, c.Since)
	}
	if err != nil {
		return remote(err)
	}
	if c.JSON {
		return writeJSON(a.out, rows)
	}
	if len(rows) == 0 {
		return c.nothing(ctx, a)
	}
	zone := a.zones(ctx)(c.Task)
	for _, o := range rows {
		text.Fprintf(a.out, "%s\n", whySentence(o, zone))
	}
	if len(rows) == c.Limit {
		text.Fprintf(a.out, "Older instants are not shown; --limit %d shows more.\n", 10*c.Limit)
	}
	return nil
}

// nothing explains why there is no row: the task was not due, or not known.
func (c whyCmd) nothing(ctx context.Context, a *app) error {
	i, err := a.Inspect(ctx)
	if err != nil {
		return err
	}
	t, err := i.Task(c.Task)
	if err != nil {
		return err
	}
	s, err := scheduler.Parse(t.Task.Schedule)
	switch {
	case len(t.Task.Schedule.Specs) == 0:
		text.Fprintf(a.out, "%s has no schedule: it runs only by hand (`runnerd run %s`).\n", c.Task, c.Task)
	case err != nil:
		return &exit{task.ExitUsage, err}
	case !c.At.IsZero() && !isDue(s, c.At):
		next, _ := s.Next(c.At)
		text.Fprintf(a.out, "%s was not due at %s; the next instant after it is %s.\n", c.Task, c.At.Format(time.RFC3339), next.In(s.Zone()).Format(time.RFC3339))
	case !c.At.IsZero() && c.At.After(time.Now()):
		text.Fprintf(a.out, "%s is due then; that lies ahead.\n", c.Task)
	default:
		text.Fprintf(a.out, "Nothing is recorded for %s: the daemon has not seen it due yet.\n", c.Task)
	}
	return nil
}

func isDue(s *scheduler.Schedule, at time.Time) bool {
	next, ok := s.Next(at.Add(-time.Nanosecond))
	return ok && next.Equal(at)
}

// whySentence says in words what became of an instant.
func whySentence(o control.WhyRow, zone *time.Location) string {
	due := o.Due.In(zone).Format("Mon 2006-01-02 15:04:05 -07:00")
	if o.Count > 1 {
		return fmt.Sprintf("%s to %s: %d instants %s: %s.", due, o.Until.In(zone).Format("Mon 2006-01-02 15:04:05 -07:00"), o.Count, o.End, reasonWords(o.Reason))
	}
	if o.End == task.EndRun {
		ahead := ""
		if o.Due.After(time.Now()) {
			ahead = " That lies ahead: the clock has gone back since, and the instant does not run again."
		}
		return fmt.Sprintf("%s: became run %s; `runnerd show %s` shows it.%s", due, o.Run, o.Run, ahead)
	}
	return fmt.Sprintf("%s: %s, because %s.", due, o.End, reasonWords(o.Reason))
}

var reasons = map[string]string{
	task.ReasonOverlap:         "an earlier run of the task was still active (overlap: skip)",
	task.ReasonPaused:          "it was paused",
	task.ReasonDisabled:        "it was disabled (enabled: false)",
	task.ReasonBudget:          "the day's budget was spent",
	task.ReasonDown:            "the daemon did not run",
	task.ReasonStepped:         "the clock was set forward past it while the daemon ran",
	task.ReasonWindow:          "it was noticed later than catch_up_window allows",
	task.ReasonSuperseded:      "catch_up: once ran a newer instant instead",
	task.ReasonScheduleChanged: "the schedule was edited before it fired",
	task.ReasonReplaced:        "a newer instant replaced it (overlap: replace)",
	task.ReasonPast:            "it was past already when the task was first seen",
	task.ReasonQueueFull:       "one instant was queued already (overlap: queue)",
}

// reasonWords puts a stored reason, with its detail, into words.
func reasonWords(reason string) string {
	code, detail, found := strings.Cut(reason, ": ")
	words, ok := reasons[code]
	if !ok {
		return reason
	}
	if found {
		return words + " (" + detail + ")"
	}
	return words
}
