package wire

import (
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"runnerd/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The environment must not decide where prompts go.
func TestNoProxyUnlessConfigured(t *testing.T) {
	plain, err := newTransport("")
	if err != nil || plain.Proxy != nil {
		t.Errorf("without a proxy: %v, %v", plain.Proxy != nil, err)
	}
	proxied, err := newTransport("http://proxy.example:3128")
	if err != nil || proxied.Proxy == nil {
		t.Errorf("with a proxy: %v", err)
	}
	if _, err := newTransport("proxy:3128"); err == nil {
		t.Error("a proxy that is no URL was taken")
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "30", 30 * time.Second},
		{"Retry-After", " 0.5 ", 500 * time.Millisecond},
		{"Retry-After", "Sun, 01 Mar 2026 12:01:00 GMT", time.Minute},
		{"Retry-After", "Sun, 01 Mar 2026 11:00:00 GMT", 0},
		{"Retry-After", "-5", 0},
		{"Retry-After", "1e300", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "soon", 0},
		{"Retry-After-Ms", "250", 250 * time.Millisecond},
	}
	for _, tt := range tests {
		if got := retryAfter(http.Header{tt.name: {tt.value}}, now); got != tt.want {
			t.Errorf("%s: %s is %s, want %s", tt.name, tt.value, got, tt.want)
		}
	}
}

// Ids are unique over a whole history, whatever the models called them.
func TestPrepareIDs(t *testing.T) {
	call := func(id string) task.Message {
		return task.Message{Role: task.RoleAssistant, Calls: []task.ToolCall{{ID: id, Name: "x"}}}
	}
	result := func(id, text string) task.Message {
		return task.Message{Role: task.RoleTool, CallID: id, Text: text}
	}
	msgs := []task.Message{{Role: task.RoleUser}, call("a"), result("a", "1"), call("a"), result("a", "2"),
		call("call_r2"), result("call_r2", "3"), call(""), result("", "4")}
	entries, err := Prepare(msgs, "v")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := 1; i < len(entries); i += 2 {
		id := entries[i].Calls[0].ID
		if seen[id] || !goodID.MatchString(id) {
			t.Errorf("id %q is not of its own", id)
		}
		seen[id] = true
		if r := entries[i+1].Results[0]; r.CallID != id {
			t.Errorf("result %q answers %q, want %q", r.Text, r.CallID, id)
		}
	}
	again, err := Prepare(msgs, "v")
	if err != nil || again[3].Calls[0].ID != entries[3].Calls[0].ID {
		t.Errorf("the same history was prepared in two ways")
	}
}

func TestArguments(t *testing.T) {
	for in, want := range map[string]string{
		`{"a": 1}`: `{"a": 1}`,
		"":         "{}",
		" \n":      "{}",
		"[1]":      `{"unparsed_arguments":"[1]"}`,
		`{"a":`:    `{"unparsed_arguments":"{\"a\":"}`,
	} {
		if got := Arguments(in); got != want {
			t.Errorf("%q became %s, want %s", in, got, want)
		}
	}
}

func FuzzComplaint(f *testing.F) {
	f.Add([]byte(`{"error":{"message":"m","code":429,"metadata":{"raw":"x"}}}`))
	f.Add([]byte(`{"error":"words","detail":[1]}`))
	f.Add([]byte("<html>"))
	f.Fuzz(func(t *testing.T, body []byte) {
		c := ParseComplaint(body)
		if c.Classify(true).Kind == "" || len(c.Message) > 2*maxWords+20 {
			t.Fatalf("%q became %+v", body, c)
		}
	})
}
