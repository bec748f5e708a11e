package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"runnerd/control"
	"runnerd/task"
	"runnerd/text"
)

// printer shows a run to a person, message by message, as it happens or after.
type printer struct {
	w     io.Writer
	color bool
	whole bool // texts uncut
	zone  *time.Location
	shown int64  // seq of the newest message printed
	tried string // what the run was last said to be at
}

func newPrinter(w io.Writer, zone *time.Location) *printer {
	p := &printer{w: w, zone: zone}
	if f, ok := w.(*os.File); ok {
		p.color = term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == ""
	}
	return p
}

// The colours of a status or a decision.
const (
	green  = "32"
	red    = "31"
	yellow = "33"
	dim    = "2"
	bold   = "1"
)

func (p *printer) paint(code, s string) text.Raw {
	return p.paintRaw(code, text.Raw(text.Field(s)))
}

func (p *printer) paintRaw(code string, s text.Raw) text.Raw {
	if !p.color {
		return s
	}
	return "\x1b[" + text.Raw(code) + "m" + s + "\x1b[0m"
}

// Messages prints what is newer than what was printed before.
func (p *printer) Messages(msgs []task.Message, receipts []task.Receipt) {
	for i := range msgs {
		if m := &msgs[i]; m.Seq > p.shown {
			p.message(m, msgs, receipts)
			p.shown = m.Seq
		}
	}
}

func (p *printer) message(m *task.Message, msgs []task.Message, receipts []task.Receipt) {
	at := m.At.In(p.zone).Format("15:04:05")
	switch m.Role {
	case task.RoleUser:
		text.Fprintf(p.w, "%s  prompt   %s\n", at, p.text(m.Text, 11))
	case task.RoleSummary:
		text.Fprintf(p.w, "%s  summary  %s\n", at, p.text(m.Text, 11))
	case task.RoleAssistant:
		p.assistant(at, m)
	case task.RoleTool:
		p.tool(m, msgs, receipts)
	}
}

func (p *printer) assistant(at string, m *task.Message) {
	if m.LastWord() && m.Model == "" { // of our own
		text.Fprintf(p.w, "%s  end      %s\n", at, p.paintRaw(yellow, p.text(m.Notice, 11)))
		return
	}
	spent := ""
	if m.Usage != nil {
		spent = fmt.Sprintf("  (%d+%d tokens)", m.Usage.Input, m.Usage.Output)
	}
	text.Fprintf(p.w, "%s  %s  model %s%s\n", at, p.paint(bold, fmt.Sprintf("step %-2d", m.Step)), m.Model, p.paint(dim, spent))
	if m.Text != "" {
		text.Fprintf(p.w, "            %s\n", p.text(m.Text, 12))
	}
	for _, c := range m.Calls {
		text.Fprintf(p.w, "            asks for %s %s\n", p.paint(bold, pairName(m.Slots, c.Name)), oneLine(c.Arguments, 160))
	}
	if m.Notice != "" {
		text.Fprintf(p.w, "            %s\n", p.paintRaw(yellow, p.text(m.Notice, 12)))
	}
}

func (p *printer) tool(m *task.Message, msgs []task.Message, receipts []task.Receipt) {
	for _, rc := range receipts {
		if rc.Step == m.Step && rc.CallID == m.CallID {
			p.receipt(rc)
		}
	}
	what := "answer"
	if m.IsError {
		what = "error"
	}
	text.Fprintf(p.w, "            %-8s %s\n", what, p.text(m.Text, 21))
}

// receipt is the line that says what policy decided, and why.
func (p *printer) receipt(rc task.Receipt) {
	word, color := "refused", red
	switch rc.Decision {
	case task.DecisionAllow:
		word, color = "allowed", green
	case task.DecisionPark:
		word, color = "parked", yellow
	}
	code := ""
	if rc.Code != "" {
		code = " [" + rc.Code + "]"
	}
	name := rc.Tool
	if rc.Connector != "" {
		name = rc.Connector + "/" + rc.Tool
	}
	text.Fprintf(p.w, "            %s %s (%s)%s: %s\n", p.paint(color, word), name, orNone(rc.Class), code, rc.Rule)
}

// text indents the lines after the first and cuts a long text.
func (p *printer) text(s string, indent int) text.Raw {
	s = strings.TrimSpace(s)
	if !p.whole {
		s = text.Cut(s, 600)
	}
	return text.Raw(text.Indent(s, indent))
}

// Retry says that a run goes on later, and why.
func (p *printer) Retry(at time.Time, reason string) {
	text.Fprintf(p.w, "retry at %s: %s\n", at.In(p.zone).Format(time.TimeOnly), reason)
}

// Trying says, once each, what a run under way is at: a model that is asked again.
func (p *printer) Trying(e task.Execution, reason string) {
	if e == task.Running && reason != "" && reason != p.tried {
		text.Fprintf(p.w, "            %s\n", reason)
	}
	p.tried = reason
}

// end prints how a run ended.
func (p *printer) end(r task.Run) { p.endRow(control.NewRunRow(r)) }

// endRow is end for a run that the daemon shows.
func (p *printer) endRow(r control.RunRow) {
	color := red
	switch r.Status {
	case task.StatusOK:
		color = green
	case task.StatusWaiting, task.StatusQueued, task.StatusRunning:
		color = yellow
	}
	var tokens int64
	if r.Tokens != nil {
		tokens = *r.Tokens
	}
	text.Fprintf(p.w, "status      %s (exit code %d)%s\n", p.paint(color, string(r.Status)), r.Status.ExitCode(), colonise(r.Reason))
	text.Fprintf(p.w, "facts       execution %s; outcome %s; delivery %s%s\n", r.Execution, orNone(r.Outcome), orNone(r.Delivery), marksText(r.Marks))
	text.Fprintf(p.w, "spent       %d steps, %d calls, %d tokens, %s, %s\n", r.Steps, r.Calls, tokens, costText(r), time.Duration(r.Wall*float64(time.Second)).Round(time.Millisecond))
	for _, step := range nextSteps(r.Marks) {
		text.Fprintf(p.w, "see         %s\n", step)
	}
	if r.Execution.Finished() && r.Delivery == string(task.DeliveryPending) {
		text.Fprintf(p.w, "delivery    not there yet, the daemon tries it again; `runnerd show %s` tells\n", r.ID)
	}
	if r.Status == task.StatusWaiting {
		text.Fprintf(p.w, "waiting     `runnerd approvals` shows what for, `runnerd approve ID` lets it go on\n")
	}
}

func marksText(marks []string) string {
	if len(marks) == 0 {
		return ""
	}
	return "; marks " + strings.Join(marks, ", ")
}

func costText(r control.RunRow) string {
	switch {
	case r.Cost != nil && slices.Contains(r.Marks, task.MarkUsageEstimated):
		return fmt.Sprintf("cost %.4f (estimate)", *r.Cost)
	case r.Cost != nil:
		return fmt.Sprintf("cost %.4f", *r.Cost)
	case r.Steps == 0:
		return "cost unknown (the model gave no answer)"
	}
	return "cost unknown (the model has no price)"
}

// nextSteps are the verbs that show more of what a run's marks say, each once.
func nextSteps(marks []string) (steps []string) {
	for _, m := range marks {
		kind, of, _ := strings.Cut(m, ":")
		step := ""
		switch kind {
		case task.MarkQuarantined:
			id, _, _ := strings.Cut(of, "/")
			step = "`runnerd connectors diff " + id + "` shows what changed since its tools were accepted"
		case task.MarkNoReadTools:
			step = "connector " + of + " was left out: none of its tools is classed read; `runnerd connectors tools " + of + " --suggest` proposes classes"
		case task.MarkConnectorDown, task.MarkRequiredDown:
			step = "`runnerd connectors` shows why " + of + " is down"
		}
		if step != "" && !slices.Contains(steps, step) {
			steps = append(steps, step)
		}
	}
	return steps
}

func colonise(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// pairName shows an alias as connector/tool.
func pairName(slots []task.Slot, alias string) string {
	for _, s := range slots {
		if s.Alias == alias {
			return s.Connector + "/" + s.Tool
		}
	}
	return alias
}

// oneLine shows a text on one line, cut at n bytes.
func oneLine(s string, n int) string {
	return text.Cut(text.Line(s), n)
}

func writeJSON(w io.Writer, v any) error { return encode(w, v, "  ") }

// writeLine writes a value as one line of JSON.
func writeLine(w io.Writer, v any) error { return encode(w, v, "") }

func encode(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", indent)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(text.JSON(b.Bytes()))
	return err
}
