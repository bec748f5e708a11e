package agentloop_test

import (
	"context"
	"net"
	"testing"
	"time"

	"runnerd/internal/looptest"
	"runnerd/llm"
	"runnerd/llm/openai"
	"runnerd/policy"
	"runnerd/task"
)

// F8: a connection that this machine refuses is not tried again within an attempt. A
// person who waits is told at once; a run that nobody watches has its own retry, since
// the model's server may be starting anew.
func TestRefusedHereIsRetriedWhenNobodyWaits(t *testing.T) {
	for trigger, again := range map[task.Trigger]bool{
		task.TriggerManual: false, task.TriggerSchedule: true, task.TriggerCatchUp: true,
	} {
		t.Run(string(trigger), func(t *testing.T) {
			w := world(t)
			w.Task(task.Task{ID: "brief", Retry: attempts(2)}, policy.Fields{})
			refused := refusing(t)
			w.Use(refused)
			run := w.QueueBy("brief", trigger)
			w.Claim(run)
			r := w.Go(run)
			if n := len(w.Requests()); n != 1 {
				t.Errorf("asked %d times, want once", n)
			}
			if !again {
				ended(t, r, task.StatusFailed, "connection refused")
				return
			}
			if r.Run.Execution != task.Queued {
				t.Fatalf("run is %s (%s), want it to wait for its second attempt", r.Run.Execution, r.Run.Reason)
			}
			w.Use(looptest.ModelFunc(func(context.Context, *llm.Request) (*llm.Response, error) {
				said := looptest.Say("There again.")
				return &said, nil
			}))
			w.ClaimAt(run, time.Now().Add(time.Hour))
			ended(t, w.Go(run), task.StatusOK, "")
		})
	}
}

// refusing is a model on a port of this machine where nobody listens.
func refusing(t *testing.T) llm.Model {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := openai.New(openai.Options{Endpoint: llm.Endpoint{BaseURL: "http://" + l.Addr().String() + "/v1", Model: "m"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}
