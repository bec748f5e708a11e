package agentloop_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"runnerd/internal/looptest"
	"runnerd/policy"
	"runnerd/task"
)

// BenchmarkDecision is what freshness costs at every call: the policy read from
// SQLite, then the decision. Ten connectors are configured.
func BenchmarkDecision(b *testing.B) {
	w := looptest.New(b)
	desk(w)
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
		reader(w, id)
	}
	w.Task(task.Task{ID: "brief"}, policy.Fields{Tools: task.ListOf("desk"), Allow: grants("desk/note", "a/*")})
	tool := task.Tool{Name: "note", InputSchema: json.RawMessage(noteSchema)}
	tool.Hash = tool.DefinitionHash()
	call := policy.Call{
		Name: note, Arguments: hello, Connected: []policy.Connected{{ID: "desk", Up: true, Tools: []task.Tool{tool}}}, Schemas: policy.NewSchemas(), Secret: w.Redact.Find,
		Slots: []task.Slot{{Alias: note, Connector: "desk", Tool: "note", Definition: tool.Hash}},
	}
	ctx := context.Background()
	took := make([]time.Duration, 0, 1<<16)
	for b.Loop() {
		begun := time.Now()
		eff, err := w.Rules.Effective(ctx, "brief", "brief", "")
		if err != nil {
			b.Fatal(err)
		}
		if d := policy.Decide(eff, call); !d.Allowed() {
			b.Fatalf("%+v", d)
		}
		took = append(took, time.Since(begun))
	}
	p50(b, took)
}

// BenchmarkRunOneCall is a whole run with one tool call, every step durable.
func BenchmarkRunOneCall(b *testing.B) {
	w := looptest.New(b)
	desk(w)
	w.Task(task.Task{ID: "brief", Session: task.SessionFresh}, policy.Fields{})
	w.Script("  - call: [{tool: desk/look, args: {}}]\n  - say: done\n")
	w.Run("brief") // opens the connector
	took := make([]time.Duration, 0, 1<<12)
	for b.Loop() {
		b.StopTimer()
		run := w.Start("brief")
		b.StartTimer()
		begun := time.Now()
		if err := w.Runner.Run(context.Background(), run); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begun))
	}
	p50(b, took)
}

func p50(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
}
