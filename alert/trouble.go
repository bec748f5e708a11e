package alert

import (
	"strings"
	"time"

	"runnerd/task"
	"runnerd/text"
)

// Events, as `notify: events:` names them.
const (
	EventFailure  = "failure"
	EventApproval = "approval"
	EventBudget   = "budget"
	EventBreaker  = "breaker"
	EventConfig   = "config"
)

// Ended says what the end of a run means: a trouble of its task, or the end of
// all of them. A cancelled run says nothing of how its task does. A run that only
// its delivery failed is told by Delivery.
func (b *Board) Ended(run task.Run) {
	status := run.BeforeDelivery().Status()
	of := "task/" + run.Task + "/"
	switch status {
	case task.StatusOK:
		for _, t := range b.Open(of) {
			b.Clear(t.Key, text.Sprintf("Task %s works again: run %s ended ok.", run.Task, run.ID))
		}
		return
	case task.StatusFailed, task.StatusDenied, task.StatusUnknown, task.StatusBudget:
	default:
		return
	}
	key, event := of+string(status), EventFailure
	switch {
	case status == task.StatusUnknown:
		key += "/" + run.ID // each must be looked at by itself
	case DayIsSpent(run):
		event = EventBudget
	case status == task.StatusBudget:
		key, event = of+"limit", EventBudget
	}
	for _, t := range b.Open(of) {
		if t.Key != key && !strings.HasPrefix(t.Key, of+string(task.StatusUnknown)+"/") {
			b.Drop(t.Key)
		}
	}
	b.Raise(task.Trouble{Key: key, Event: event, Title: text.Sprintf("%s: %s", run.Task, status), Text: runText(run, status)})
}

// DayIsSpent tells whether a daily limit ended a run: nothing more can run today.
func DayIsSpent(run task.Run) bool {
	return run.Execution == task.Limited && strings.Contains(run.Reason, "_per_day")
}

func runText(run task.Run, status task.Status) string {
	var s strings.Builder
	text.Fprintf(&s, "Task %s, run %s, ended: %s", run.Task, run.ID, status)
	if run.Reason != "" {
		text.Fprintf(&s, ": %s", run.Reason)
	}
	s.WriteString(".\n")
	if !run.Due.IsZero() {
		text.Fprintf(&s, "It was due at %s.\n", run.Due.UTC().Format(time.RFC3339))
	}
	if status == task.StatusUnknown {
		s.WriteString("Something was sent and no answer came: look whether it was done before you run it again.\n")
	}
	text.Fprintf(&s, "See: runnerd show %s\n", run.ID)
	return s.String()
}

// Delivery says what became of one attempt to deliver a result.
func (b *Board) Delivery(run task.Run, rec task.DeliveryRecord) {
	key := text.Sprintf("delivery/%s/%d", run.Task, rec.Index)
	said := text.Sprintf("The result of task %s, run %s, did not reach its destination %d (%s): %s.\n", run.Task, run.ID, rec.Index+1, rec.To, rec.Error)
	switch {
	case rec.State == task.DestinationDelivered:
		b.Clear(key, text.Sprintf("Results of task %s reach their destination %d (%s) again.", run.Task, rec.Index+1, rec.To))
		return
	case rec.State == task.DestinationFailed:
		said += text.Sprintf("It is not tried again. The result is kept: runnerd show %s\n", run.ID)
	case rec.State == task.DestinationPending:
		said += text.Sprintf("It is tried again at %s.\n", rec.NextAt.UTC().Format(time.RFC3339))
	default:
		return
	}
	b.Raise(task.Trouble{Key: key, Event: EventFailure, Title: text.Field(run.Task) + ": result not delivered", Text: said})
}

// Approvals makes the approvals that wait for a person known, each with the
// commands that decide it; command is how runnerd is called here.
func (b *Board) Approvals(pending []task.Approval, command string) {
	list := make([]task.Trouble, len(pending))
	for i, a := range pending {
		list[i] = task.Trouble{
			Key: "approval/" + a.ID, Event: EventApproval, Title: text.Sprintf("%s: approval needed for %s/%s", a.Task, a.Connector, a.Tool),
			Text: text.Sprintf("Task %s, run %s, asks to call %s/%s (%s):\n%s\n\nTo allow exactly this call: %s approve %s\nTo refuse it: %s deny %s\n",
				a.Task, a.Run, a.Connector, a.Tool, a.Class, a.Preview, command, a.ID, command, a.ID),
		}
		if !a.ExpiresAt.IsZero() {
			list[i].Text += text.Sprintf("Without a decision it expires at %s.\n", a.ExpiresAt.UTC().Format(time.RFC3339))
		}
	}
	b.Settle("approval/", list, "It waits no more: it was decided, it expired, or its run ended. `runnerd approvals` shows which.")
}

// Everyone stands for the daemon as a whole, where a task is asked for.
const Everyone = "*"

// Project stands for the tasks of a project together, where a task is asked for.
func Project(name string) string { return Everyone + name }

func budgetKey(taskID string) string {
	switch project, sum := strings.CutPrefix(taskID, Everyone); {
	case sum && project == "":
		return "daemon/budget"
	case sum:
		return "project/" + project + "/" + string(task.StatusBudget)
	}
	return "task/" + taskID + "/" + string(task.StatusBudget)
}

// Spent says that a task's budget of the day, a Project's or Everyone's, is used up and that
// its instants are skipped.
func (b *Board) Spent(taskID, detail string) {
	who := text.Sprintf("Task %s", taskID)
	title := text.Field(taskID) + ": the day's budget is spent"
	switch project, sum := strings.CutPrefix(taskID, Everyone); {
	case sum && project == "":
		who, title = "Every task", "the day's budget is spent"
	case sum:
		who, title = text.Sprintf("Each task of project %s", project), text.Sprintf("project %s: the day's budget is spent", project)
	}
	b.Raise(task.Trouble{
		Key: budgetKey(taskID), Event: EventBudget, Title: title,
		Text: text.Sprintf("%s is skipped until the next day: %s.\n`runnerd cost` shows what was spent.\n", who, detail),
	})
}

// NewDay says that a budget that was spent before dawn, the beginning of today, is
// there again.
func (b *Board) NewDay(taskID string, dawn time.Time) {
	for _, t := range b.Open(budgetKey(taskID)) {
		if t.Key == budgetKey(taskID) && t.OpenedAt.Before(dawn) {
			b.Clear(t.Key, "A new day has begun; its budget is there again.")
		}
	}
}

// Connector says that a connector was given up for a while, or works again.
func (b *Board) Connector(id string, works bool, detail string) {
	key := "connector/" + id + "/breaker"
	if works {
		b.Clear(key, text.Sprintf("Connector %s works again.", id))
		return
	}
	b.Raise(task.Trouble{
		Key: key, Event: EventBreaker, Title: text.Sprintf("connector %s is down", id),
		Text: text.Sprintf("Connector %s %s\nSee: runnerd connectors\n", id, detail),
	})
}

// Files says which files are refused, and which say what cannot be done; both by
// name, with the detail.
func (b *Board) Files(broken, faulty map[string]string) {
	b.files("file/", broken, " is refused", "\nThe last good revision, if there is one, stays in force. See: runnerd check\n", "The file is good now, or gone.")
	b.files("fault/", faulty, " says what cannot be done", "\nSee: runnerd check\n", "It can be done now.")
}

func (b *Board) files(prefix string, wrong map[string]string, title, advice, over string) {
	list := make([]task.Trouble, 0, len(wrong))
	for file, detail := range wrong {
		list = append(list, task.Trouble{Key: prefix + file, Event: EventConfig, Title: text.Sprintf("file %s%s", file, title), Text: text.Block(detail) + advice})
	}
	b.Settle(prefix, list, over)
}

// Daemon says that a part of the daemon is in trouble, or with an empty detail
// that it is not.
func (b *Board) Daemon(part, detail string) {
	key := "daemon/" + part
	if detail == "" {
		b.Clear(key, "The "+part+" is fine again.")
		return
	}
	b.Raise(task.Trouble{Key: key, Event: EventFailure, Title: "the daemon's " + part + " is in trouble", Text: text.Field(detail) + "\n"})
}

// Forget drops the troubles of tasks that are not there any more.
func (b *Board) Forget(exists func(taskID string) bool) {
	for _, t := range b.Open("") {
		parts := strings.SplitN(t.Key, "/", 3)
		if (parts[0] == "task" || parts[0] == "delivery") && len(parts) == 3 && !exists(parts[1]) {
			b.Drop(t.Key)
		}
	}
}
