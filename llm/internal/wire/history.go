package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"runnerd/llm"
	"runnerd/task"
)

// Entry is one message of a history made fit to send: user or assistant, or the
// tool results that answer the entry before it.
type Entry struct {
	Role    task.Role // user | assistant | tool
	Text    string
	Calls   []task.ToolCall
	Opaque  json.RawMessage // only if it is this vendor's own
	Results []Result
}

// Result is one tool result, in the order of the calls.
type Result struct {
	CallID  string
	Name    string
	Text    string
	IsError bool
}

// Said is a result's text for wires that have no place for its failure: a failed
// call must not read like one that did its work. What runnerd itself answers says
// so already.
func (r Result) Said() string {
	if !r.IsError || Parse(json.RawMessage(r.Text)).Has("error") {
		return r.Text
	}
	return strings.TrimSpace(failedCall + "\n" + r.Text)
}

const failedCall = "[this call failed; what the tool said, if anything, follows]"

// Prepare checks a history and makes it fit to send. Neighbouring user messages
// and summaries become one, since strict servers want the roles to alternate;
// ids and names that a server would reject are replaced, the same way each
// time, since one odd call must not spoil a session for ever; opaque parts of
// other vendors are left out.
func Prepare(msgs []task.Message, vendor string) ([]Entry, error) {
	if err := llm.CheckHistory(msgs); err != nil {
		return nil, err
	}
	var entries []Entry
	names := newIDs()
	for _, m := range msgs {
		switch m.Role {
		case task.RoleAssistant:
			e := Entry{Role: m.Role, Text: m.Text}
			if m.Vendor == vendor {
				e.Opaque = m.Opaque
			}
			names.begin()
			for _, c := range m.Calls {
				e.Calls = append(e.Calls, task.ToolCall{ID: names.assign(c.ID), Name: safeName(c.Name), Arguments: c.Arguments})
			}
			entries = append(entries, e)
		case task.RoleTool:
			addResult(&entries, names.of(m.CallID), m)
		default:
			addUser(&entries, m.Text)
		}
	}
	return entries, nil
}

func addUser(entries *[]Entry, text string) {
	if n := len(*entries); n > 0 && (*entries)[n-1].Role == task.RoleUser {
		last := &(*entries)[n-1]
		last.Text = strings.TrimLeft(last.Text+"\n\n"+text, "\n")
		return
	}
	*entries = append(*entries, Entry{Role: task.RoleUser, Text: text})
}

// addResult puts a result where its call stands among its siblings: parallel
// calls may be answered in any order, what is sent should not depend on it.
func addResult(entries *[]Entry, id string, m task.Message) {
	all := *entries
	if all[len(all)-1].Role != task.RoleTool {
		all = append(all, Entry{Role: task.RoleTool, Results: make([]Result, len(all[len(all)-1].Calls))})
	}
	calls := all[len(all)-2].Calls
	for i, c := range calls {
		if c.ID == id {
			all[len(all)-1].Results[i] = Result{CallID: id, Name: c.Name, Text: m.Text, IsError: m.IsError}
		}
	}
	*entries = all
}

// ids gives each call of a history an id that servers take and that no other
// call has.
type ids struct {
	used map[string]bool
	step map[string]string // of the newest assistant message: stored id to sent id
}

func newIDs() *ids { return &ids{used: map[string]bool{}} }

var goodID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,40}$`)

func (x *ids) begin() { x.step = map[string]string{} }

func (x *ids) assign(id string) string {
	sent := id
	for n := len(x.used) + 1; !goodID.MatchString(sent) || x.used[sent]; n++ {
		sent = fmt.Sprintf("call_r%d", n)
	}
	x.used[sent] = true
	x.step[id] = sent
	return sent
}

func (x *ids) of(id string) string { return x.step[id] }

var badNameChar = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// safeName makes what a model wrote as a tool's name one that servers take back.
func safeName(name string) string {
	name = badNameChar.ReplaceAllString(name, "_")
	if len(name) > 64 {
		name = name[:64]
	}
	if name == "" {
		return "unnamed"
	}
	return name
}

// Arguments returns the arguments of a past call as servers take them back: as
// they are if they are a JSON object, else wrapped in one, so that the model
// still sees what it wrote.
func Arguments(args string) string {
	trimmed := bytes.TrimSpace([]byte(args))
	if len(trimmed) == 0 {
		return "{}"
	}
	if trimmed[0] == '{' && json.Valid(trimmed) {
		return args
	}
	return string(JSON(map[string]string{"unparsed_arguments": args}))
}

// JSON marshals a value that always has a form in JSON, without escaping for
// HTML.
func JSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		// Only a RawMessage that is no JSON gets here; servers refuse null with
		// words of their own.
		return []byte("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Schema is a tool's input schema, or the one of a tool without parameters where
// a connector gave none or no object.
func Schema(raw json.RawMessage) json.RawMessage {
	if t := bytes.TrimSpace(raw); len(t) > 0 && t[0] == '{' && json.Valid(t) {
		return raw
	}
	return json.RawMessage(`{"type":"object","properties":{}}`)
}

// Calls completes the calls of an answer: each gets an id of its own, and empty
// arguments, which is how models write a call without any, become {}. All other
// bytes stay as they are.
func Calls(calls []task.ToolCall) []task.ToolCall {
	seen := map[string]bool{}
	for i := range calls {
		c := &calls[i]
		if strings.TrimSpace(c.Arguments) == "" {
			c.Arguments = "{}"
		}
		for n := i + 1; c.ID == "" || seen[c.ID]; n++ {
			c.ID = fmt.Sprintf("call_%d", n)
		}
		seen[c.ID] = true
	}
	return calls
}

// MaxCalls bounds the calls of one answer.
const MaxCalls = 256
