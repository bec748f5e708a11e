package llmtest

import (
	"bytes"
	"encoding/json"
	"strings"

	"runnerd/llm"
	"runnerd/task"
)

// Hear is for fake servers: it checks the history that a request carried against
// what the script played so far and returns the turn to play next. heard has
// the roles user, assistant and tool, with the reasoning that came back in
// Opaque as plain text. It reports false, and fails the test, if a history is
// wrong: a vendor's server would refuse it.
func Hear(t TB, script []Turn, heard []task.Message) (Turn, bool) {
	if err := llm.CheckHistory(heard); err != nil {
		t.Errorf("the server was sent a history that is not well formed: %v", err)
		return Turn{}, false
	}
	if heard[0].Role != task.RoleUser || heard[0].Text != Opening().Text {
		t.Errorf("the first message is %s %q, want the opening", heard[0].Role, heard[0].Text)
		return Turn{}, false
	}
	step := 0
	for i, m := range heard {
		if m.Role != task.RoleAssistant {
			continue
		}
		if step >= len(script) || !echoes(t, script[step], m) || !answers(t, script[step], heard[i+1:]) {
			return Turn{}, false
		}
		step++
	}
	if step >= len(script) {
		t.Errorf("turn %d was asked for, the script has %d", step+1, len(script))
		return Turn{}, false
	}
	return script[step], true
}

// echoes tells whether an assistant message came back as it was played.
func echoes(t TB, played Turn, m task.Message) bool {
	if m.Text != played.Text() || len(m.Calls) != len(played.Calls) {
		t.Errorf("the assistant message came back as %+v, played was %+v", m, played)
		return false
	}
	if string(m.Opaque) != played.Think {
		t.Errorf("reasoning came back as %q, played was %q", m.Opaque, played.Think)
		return false
	}
	for i, c := range m.Calls {
		if c.Name != played.Calls[i].Name || !sameArguments(played.Calls[i].Arguments, c.Arguments) {
			t.Errorf("call %s(%s) came back, played was %s(%s)", c.Name, c.Arguments, played.Calls[i].Name, played.Calls[i].Arguments)
			return false
		}
	}
	return true
}

// sameArguments allows for white space, and for arguments that are no object to
// be wrapped in one: servers parse what they are sent.
func sameArguments(played, back string) bool {
	if !strings.HasPrefix(strings.TrimSpace(played), "{") || !json.Valid([]byte(played)) {
		var wrapped map[string]string
		if json.Unmarshal([]byte(back), &wrapped) != nil || len(wrapped) != 1 {
			return false
		}
		for _, v := range wrapped {
			return v == played
		}
	}
	var a, b bytes.Buffer
	if json.Compact(&a, []byte(played)) != nil || json.Compact(&b, []byte(back)) != nil {
		return false
	}
	return a.String() == unescape(b.String())
}

// unescape undoes the escapes that encoding/json puts in for HTML's sake.
func unescape(s string) string {
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(s)
}

func answers(t TB, played Turn, rest []task.Message) bool {
	if len(rest) < len(played.Calls) {
		t.Errorf("%d results for %d calls", len(rest), len(played.Calls))
		return false
	}
	for i, c := range played.Calls {
		if got := rest[i].Text; got != Result(c) {
			t.Errorf("result %d came as %q, want %q", i+1, got, Result(c))
			return false
		}
	}
	return true
}
