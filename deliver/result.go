package deliver

import (
	"fmt"
	"strings"
	"time"

	"runnerd/task"
	"runnerd/text"
)

// Result is a finished run and what it has to say.
type Result struct {
	Run  task.Run
	Task task.Task
	// Text is the final text, notices included.
	Text string
	// Previous is the text of the task's finished run before this one; it counts
	// only if HasPrevious is set, since no earlier run and an earlier empty text
	// are different things.
	Previous    string
	HasPrevious bool
}

// The values of `when:`.
const (
	// WhenAlways delivers every result; so does an empty `when`.
	WhenAlways = "always"
	// WhenFailure delivers when the run did not do its job: any status but ok and
	// cancelled. A run that did it and reported needs_attention is no failure.
	WhenFailure = "failure"
	// WhenAttention delivers when a person should look: each failure, and each
	// run that reported needs_attention.
	WhenAttention = "attention"
	// WhenChanged delivers when the text is another than the previous run's,
	// blank space at the ends aside.
	WhenChanged = "changed"
	// WhenNotEmpty delivers when there is text and the run did not report
	// nothing_to_do.
	WhenNotEmpty = "not-empty"
)

// applies tells whether a destination with this `when` gets the result.
func (r Result) applies(when string) (bool, error) {
	switch when {
	case WhenAlways, "":
		return true, nil
	case WhenFailure:
		run := r.Run
		if run.Outcome == task.OutcomeNeedsAttention {
			run.Outcome = task.OutcomeOK
		}
		return failed(run), nil
	case WhenAttention:
		return failed(r.Run), nil
	case WhenChanged:
		return !r.HasPrevious || strings.TrimSpace(r.Text) != strings.TrimSpace(r.Previous), nil
	case WhenNotEmpty:
		return strings.TrimSpace(r.Text) != "" && r.Run.Outcome != task.OutcomeNothingToDo, nil
	}
	return false, fmt.Errorf("deliver: when %q is unknown; there are always, failure, attention, changed and not-empty", when)
}

// failed leaves a cancelled run out: whoever cancelled it knows.
func failed(r task.Run) bool {
	s := r.Status()
	return s != task.StatusOK && s != task.StatusCancelled
}

// message is a result as it is sent: redacted.
type message struct {
	title, text string
	env         []string
	data        pathData
}

func (d *Deliverer) message(res Result) message {
	status := string(res.Run.Status())
	data := newPathData(res)
	title := d.opts.Redact(fmt.Sprintf("runnerd: %s: %s", res.Run.Task, status))
	return message{
		title: title,
		text:  d.opts.Redact(body(res)),
		data:  data,
		env: []string{
			"RUNNERD_TITLE=" + title,
			"RUNNERD_TASK=" + res.Run.Task,
			"RUNNERD_RUN=" + res.Run.ID,
			"RUNNERD_STATUS=" + status,
			"RUNNERD_UNTRUSTED=" + untrusted(res.Run),
			"RUNNERD_OUTCOME=" + string(res.Run.Outcome),
			"RUNNERD_TRIGGER=" + string(res.Run.Trigger),
			"RUNNERD_DUE=" + data.Due.Format(time.RFC3339),
		},
	}
}

// body is the text, ended by a line end, and led by a line of our own when the run
// was not ok or has nothing to say, so that half a result cannot pass for a whole
// one.
func body(res Result) string {
	said := strings.TrimSpace(res.Text)
	status := res.Run.Status()
	whole := res.Text
	if !strings.HasSuffix(whole, "\n") {
		whole += "\n"
	}
	if status == task.StatusOK && said != "" {
		return untrustedLine(res) + whole
	}
	line := fmt.Sprintf("[runnerd: task %s, run %s ended: %s", res.Run.Task, res.Run.ID, status)
	if reason := text.Line(res.Run.Reason); reason != "" {
		line += ": " + reason
	}
	if said == "" {
		return line + "; it left no text]\n"
	}
	if told := untrustedLine(res); told != "" {
		return line + "]\n" + told + whole
	}
	return line + "]\n\n" + whole
}

// untrustedLine says whose words may be in the text: a stranger's that the run has
// read can come back as the agent's. An answer that fits the task's schema stays as
// it is, for a program to read; RUNNERD_UNTRUSTED tells a command.
func untrustedLine(res Result) string {
	sources := untrusted(res.Run)
	if sources == "" || len(res.Task.OutputSchema) > 0 && !res.Run.HasMark(task.MarkInvalidOutput) {
		return ""
	}
	return "[runnerd: this run read untrusted text: " + sources + "]\n\n"
}

// maxSources is how many sources are named.
const maxSources = 8

func untrusted(run task.Run) string {
	sources := run.UntrustedSources()
	if more := len(sources) - maxSources; more > 0 {
		sources = append(sources[:maxSources:maxSources], fmt.Sprintf("and %d more", more))
	}
	return text.Line(strings.Join(sources, ", "))
}
