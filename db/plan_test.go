package db

import (
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"runnerd/task"
)

// TestPlans: what is asked often is answered from an index in the order wanted.
// A walk along an index is fine where a LIMIT ends it; reading a table from end to
// end, or sorting what was found, is not.
func TestPlans(t *testing.T) {
	sqliteOnly(t)
	d := openTest(t, Options{})
	var runs []runRow
	var occurrences []occurrenceRow
	var receipts []receiptRow
	var approvals []approvalRow
	var messages []messageRow
	var events []eventRow
	receiptsOf := func(f ReceiptFilter) *bun.SelectQuery {
		sel := d.sql.Read.NewSelect().Model(&receipts)
		f.apply(sel)
		return sel
	}
	// The index that must be used, "" for the key of the table.
	for name, c := range map[string]struct {
		query *bun.SelectQuery
		index string
	}{
		"runs":                {runsQuery(d.sql.Read, RunFilter{}, &runs), "runs_newest"},
		"runs, next page":     {runsQuery(d.sql.Read, RunFilter{Before: "x"}, &runs), "runs_newest"},
		"runs since":          {runsQuery(d.sql.Read, RunFilter{Since: noon}, &runs), "runs_newest"},
		"runs of a task":      {runsQuery(d.sql.Read, RunFilter{Task: "a"}, &runs), "runs_task_newest"},
		"runs of a task, on":  {runsQuery(d.sql.Read, RunFilter{Task: "a", Before: "x"}, &runs), "runs_task_newest"},
		"occurrences":         {occurrencesQuery(d.sql.Read, OccurrenceFilter{Task: "a"}, &occurrences), "occurrences"},
		"occurrences between": {occurrencesQuery(d.sql.Read, OccurrenceFilter{Task: "a", Since: noon, Until: noon}, &occurrences), "occurrences"},
		"claim interrupted":   {interruptedQuery(d.sql.Read, &runs), "runs_active "},
		"claim ready":         {readyQuery(d.sql.Read, noon, &runs), "runs_active "},
		"next ready":          {nextReadyQuery(d.sql.Read, noon), "runs_active "},
		"receipts":            {receiptsOf(ReceiptFilter{}), ""},
		"receipts, next page": {receiptsOf(ReceiptFilter{Before: 9}), ""},
		"receipts of a run":   {receiptsOf(ReceiptFilter{Run: "x"}), "receipts_run"},
		"receipts of a task":  {receiptsOf(ReceiptFilter{Task: "x", Before: 9}), "receipts_task"},
		"undelivered":         {undeliveredQuery(d.sql.Read, 9, &runs), "runs_undelivered"},
		"previous output":     {previousQuery(d.sql.Read, task.Run{ID: "x", Task: "a", CreatedAt: noon}), "runs_task_newest"},
		"overdue":             {overdueQuery(d.sql.Read, noon, &approvals), "approvals_pending"},
		"messages of a run":   {d.sql.Read.NewSelect().Model(&messages).Where("m.run = ?", "x").Order("m.seq"), "messages_run"},
		"window": {d.sql.Read.NewSelect().Model(&messages).Where("m.session = ?", "x").
			Where("m.seq >= (SELECT s.window_start FROM sessions AS s WHERE s.id = ?)", "x").Order("m.seq"), "messages"},
		"events":          {d.sql.Read.NewSelect().Model(&events).Where("e.seq > 5").Order("e.seq").Limit(9), ""},
		"events of a run": {d.sql.Read.NewSelect().Model(&events).Where("e.run = 'x' AND e.seq > 5").Order("e.seq").Limit(9), "events_run"},
	} {
		t.Run(name, func(t *testing.T) { checkPlanOf(t, d, c.query.String(), c.index) })
	}
	var rows []cursorRow
	checkPlanOf(t, d, d.sql.Read.NewSelect().Model(&rows).Where("c.task IN (?)", bun.List([]string{"a", "b"})).String(), "cursors")
	active := d.sql.Read.NewSelect().Model(&runs).Where("r.finished_at IS NULL").Where("r.task IN (?)", bun.List([]string{"a", "b"}))
	checkPlanOf(t, d, active.String(), "runs_active_task")
	last := d.sql.Read.NewRaw("WITH RECURSIVE tasks AS (" + everyTask + ") SELECT (SELECT n.id FROM runs AS n WHERE n.task = tasks.task" +
		" ORDER BY n.created_at DESC, n.id DESC LIMIT 1) FROM tasks").String()
	for _, line := range planOf(t, d, last) {
		if strings.Contains(line, "TEMP B-TREE") || strings.HasPrefix(line, "SCAN f") && !strings.Contains(line, "INDEX") {
			t.Errorf("last runs: %s", line)
		}
	}
}

func planOf(t *testing.T, d *DB, query string) (lines []string) {
	t.Helper()
	rows, err := d.sql.Read.DB.QueryContext(ctx, "EXPLAIN QUERY PLAN "+query)
	ok(t, err)
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var line string
		ok(t, rows.Scan(&id, &parent, &unused, &line))
		lines = append(lines, line)
	}
	ok(t, rows.Err())
	return lines
}

func checkPlanOf(t *testing.T, d *DB, query, index string) {
	t.Helper()
	lines := planOf(t, d, query)
	all := strings.Join(lines, "\n")
	used := strings.Contains(all, "USING INTEGER PRIMARY KEY") || strings.HasPrefix(all, "SCAN rc") && index == ""
	if index != "" {
		used = strings.Contains(all, "INDEX "+index) || strings.Contains(all, "sqlite_autoindex_"+index+"_")
	}
	if !used {
		t.Errorf("does not use %q:\n%s\n%s", index, all, query)
	}
	for _, line := range lines {
		if strings.Contains(line, "TEMP B-TREE") {
			t.Errorf("sorts: %s\n%s", line, query)
		}
		if strings.HasPrefix(line, "SCAN") && !strings.Contains(line, "INDEX") && index != "" {
			t.Errorf("reads everything: %s\n%s", line, query)
		}
	}
}
