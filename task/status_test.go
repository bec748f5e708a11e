package task

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The page that people read and the code must not drift apart.
func TestRunStatesPageMatchesCode(t *testing.T) {
	page, err := os.ReadFile("../docs/run-states.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[[2]Execution]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\w+) \| (\w+) \| .* \|$`).FindAllStringSubmatch(string(page), -1) {
		listed[[2]Execution{Execution(m[1]), Execution(m[2])}] = true
	}
	for _, from := range Executions() {
		for _, to := range Executions() {
			if got, want := listed[[2]Execution{from, to}], from.CanMove(to); got != want {
				t.Errorf("%s to %s: docs/run-states.md says %v, CanMove says %v", from, to, got, want)
			}
		}
		if from.Finished() == from.Active() {
			t.Errorf("%s: a run is either finished or active", from)
		}
	}
}

// statusLine is a line of the page's table of statuses.
type statusLine struct {
	status                               Status
	code                                 string
	executions, outcomes, deliver, marks []string
}

func statusTable(t *testing.T) (table []statusLine) {
	page, err := os.ReadFile("../docs/run-states.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(page), "## Status")
	for _, line := range strings.Split(part, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 6 || strings.HasPrefix(line, "|---") || strings.Contains(line, "exit code") {
			continue
		}
		table = append(table, statusLine{
			status: Status(strings.TrimSpace(cells[0])), code: strings.TrimSpace(cells[1]), executions: strings.Fields(cells[2]),
			outcomes: strings.Fields(cells[3]), deliver: strings.Fields(cells[4]), marks: strings.Fields(cells[5]),
		})
	}
	return table
}

// matches is the page's rule, in words of its own.
func (l statusLine) matches(execution, outcome, delivery string, marks map[string]bool) bool {
	in := func(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }
	return in(l.executions, execution) && in(l.outcomes, outcome) && in(l.deliver, delivery) &&
		(len(l.marks) == 0 || slices.ContainsFunc(l.marks, func(m string) bool { return marks[m] }))
}

// TestStatusOfEveryCombination holds StatusOf against the table of
// docs/run-states.md (issue 7 item 3): every execution, outcome, delivery and set of
// the marks that the page names, and of some that decide nothing. What receipts say
// is said once by a mark and once by the receipts.
func TestStatusOfEveryCombination(t *testing.T) {
	table := statusTable(t)
	marks := []string{MarkConnectorDown + ":web"}
	for _, line := range table {
		marks = append(marks, line.marks...)
	}
	if len(table) != 14 || len(marks) != 12 {
		t.Fatalf("the page has %d lines and %d marks", len(table), len(marks))
	}
	for _, execution := range Executions() {
		for _, outcome := range []Outcome{OutcomeNone, OutcomeOK, OutcomeNothingToDo, OutcomeFailed, OutcomeNeedsAttention} {
			for _, delivery := range []DeliveryState{DeliveryNone, DeliveryPending, DeliveryDelivered, DeliveryFailed} {
				for set := range 1 << len(marks) {
					r := Run{Execution: execution, Outcome: outcome, Delivery: delivery}
					has := map[string]bool{}
					for i, m := range marks {
						if set&(1<<i) != 0 {
							has[m] = true
							r.Mark(withValue(m))
						}
					}
					checkStatus(t, table, r, has)
				}
			}
		}
	}
}

func withValue(mark string) string {
	switch mark {
	case MarkRefused:
		return mark + ":2"
	case MarkRequiredDown:
		return mark + ":mail"
	}
	return mark
}

func checkStatus(t *testing.T, table []statusLine, r Run, has map[string]bool) {
	i := slices.IndexFunc(table, func(l statusLine) bool {
		return l.matches(string(r.Execution), string(r.Outcome), string(r.Delivery), has)
	})
	if i < 0 {
		t.Fatalf("no line of the page for %+v", r)
	}
	code := strings.ReplaceAll(strconv.Itoa(r.Status().ExitCode()), "1", "–")
	if got := r.Status(); got != table[i].status || code != table[i].code {
		t.Fatalf("%+v is %s (%s), the page says %s (%s)", r, got, code, table[i].status, table[i].code)
	}
	var said []string
	var receipts []Receipt
	for _, m := range r.Marks {
		switch m {
		case MarkUnknownEffect:
			receipts = append(receipts, Receipt{Class: "write", Decision: DecisionAllow, Outcome: ReceiptUnknown})
		case MarkRefused + ":2":
			refusal := Receipt{Decision: DecisionDeny, Code: "denied", Outcome: ReceiptNone}
			receipts = append(receipts, refusal, refusal)
		default:
			said = append(said, m)
		}
	}
	r.Marks = said
	if got := StatusOf(r, receipts); got != table[i].status || len(r.Marks) != len(said) {
		t.Fatalf("%+v with %d receipts is %s, the page says %s", r, len(receipts), got, table[i].status)
	}
}

// TestAccount: what receipts say, and what they do not.
func TestAccount(t *testing.T) {
	for name, c := range map[string]struct {
		in   Run
		of   Receipt
		want []string
	}{
		"write unknown":             {Run{Execution: Completed}, Receipt{Class: "write", Outcome: ReceiptUnknown}, []string{MarkUnknownEffect}},
		"no class counts as exec":   {Run{Execution: Completed}, Receipt{Outcome: ReceiptUnknown}, []string{MarkUnknownEffect}},
		"read unknown":              {Run{Execution: Completed}, Receipt{Class: "read", Outcome: ReceiptUnknown}, nil},
		"write under way":           {Run{Execution: Running}, Receipt{Class: "write"}, nil},
		"write nobody waits for":    {Run{Execution: Interrupted}, Receipt{Class: "write"}, []string{MarkUnknownEffect}},
		"write in a waiting run":    {Run{Execution: Waiting}, Receipt{Class: "write"}, []string{MarkUnknownEffect}},
		"refused":                   {Run{}, Receipt{Decision: DecisionDeny, Code: "not_offered", Outcome: ReceiptNone}, []string{"refused:1"}},
		"a code nobody knows":       {Run{}, Receipt{Decision: DecisionDeny, Code: "new_code", Outcome: ReceiptNone}, []string{"refused:1"}},
		"parked":                    {Run{}, Receipt{Decision: DecisionPark, Code: "needs_approval", Outcome: ReceiptNone}, nil},
		"wrong name":                {Run{}, Receipt{Decision: DecisionDeny, Code: "unknown_tool", Outcome: ReceiptNone}, nil},
		"marks are not taken back":  {Run{Marks: []string{MarkUnknownEffect, "refused:3"}}, Receipt{Outcome: ReceiptOK}, []string{MarkUnknownEffect, "refused:3"}},
		"more refusals than before": {Run{Marks: []string{"compacted"}}, Receipt{Code: "denied", Outcome: ReceiptNone}, []string{"compacted", "refused:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.in.Account([]Receipt{c.of}); !slices.Equal(c.in.Marks, c.want) {
				t.Errorf("marks %v, want %v", c.in.Marks, c.want)
			}
		})
	}
}

func TestRefusedMarkIsReplaced(t *testing.T) {
	var r Run
	r.Mark(MarkEmptyAnswer)
	r.SetRefused(2)
	r.SetRefused(3)
	if r.Refused() != 3 || len(r.Marks) != 2 {
		t.Errorf("marks %v, want one refused:3 beside the other", r.Marks)
	}
	if r.SetRefused(0); r.HasMark(MarkRefused) {
		t.Errorf("marks %v, want no refused", r.Marks)
	}
}
