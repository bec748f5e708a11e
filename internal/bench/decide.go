package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"runnerd/connector"
	"runnerd/policy"
	"runnerd/task"
	"runnerd/taskpolicy"
)

// samples is how often a small thing is measured.
const samples = 5000

// decideAim bounds one fresh decision, p50.
const decideAim = 50 * time.Microsecond

// decisions measures one fresh decision: the policy read from its database beside
// ten connectors, then decided, with a grant that matches.
func decisions(ctx context.Context, b *bench) (err error) {
	place, err := b.site()
	if err != nil {
		return err
	}
	store, err := taskpolicy.Open(ctx, taskpolicy.Options{DSN: filepath.Join(place.state, "task_policies.db")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.SyncFiles(ctx, policyRows(), policy.Fields{}, "bench"); err != nil {
		return err
	}
	tool := task.Tool{
		Name: "write_file", Hash: "0123", // a definition's hash is taken when it is listed, not when a call is decided
		InputSchema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`),
	}
	call := policy.Call{
		Name: "mcp__c0__write_file", Arguments: `{"path":"/srv/reports/2026-01-01.md"}`, Schemas: policy.NewSchemas(),
		Connected: []policy.Connected{{ID: "c0", Up: true, Tools: []task.Tool{tool}}},
		Slots:     []task.Slot{{Alias: "mcp__c0__write_file", Connector: "c0", Tool: "write_file", Definition: tool.Hash}},
		Resolve:   func(_, path string) (string, error) { return path, nil },
	}
	if err := store.Accept(ctx, "c0", []task.Tool{tool}, "bench"); err != nil {
		return err
	}
	var took []time.Duration
	for range samples {
		begun := time.Now()
		e, err := store.Effective(ctx, "brief", "brief", "")
		if err != nil {
			return err
		}
		if d := policy.Decide(e, call); !d.Allowed() {
			return fmt.Errorf("the call was refused: %s", d.Rule)
		}
		took = append(took, time.Since(begun))
	}
	p50 := quantile(took, 0.5)
	b.add("one fresh decision", fmt.Sprintf("p50 %s, p99 %s", micros(p50), micros(quantile(took, 0.99))), "p50 < 50 µs", below(p50, decideAim))
	return nil
}

func policyRows() []taskpolicy.Row {
	write := policy.Grant{Connector: "c0", Tool: "write_file", Where: map[string]policy.Condition{"path": {Under: "/srv/reports"}, "content": {Any: true}}}
	rows := []taskpolicy.Row{{Scope: policy.ScopeTask, ID: "brief", Fields: policy.Fields{Tools: task.ListOf("c0"), Allow: task.ListOf(write)}}}
	for i := range 10 {
		rows = append(rows, taskpolicy.Row{Scope: policy.ScopeConnector, ID: fmt.Sprintf("c%d", i), Fields: policy.Fields{
			Classes: map[string]policy.Class{"write_file": policy.ClassWrite, "read_file": policy.ClassRead},
		}})
	}
	return rows
}

// calls measures one call through a real stdio server: the binary's own files
// connector, contained as always.
func calls(ctx context.Context, b *bench) (err error) {
	place, err := b.site()
	if err != nil {
		return err
	}
	pool := connector.New(connector.Options{StateDir: place.state, Executable: b.binary, Environ: []string{"PATH=/usr/bin:/bin"}})
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, pool.Close(last))
	}()
	pool.Set([]task.Connector{{ID: "files", Builtin: "files", Root: filepath.Join(place.dir, "files")}})
	begun := time.Now()
	if err := pool.Dial(ctx, "files"); err != nil {
		return err
	}
	opened := time.Since(begun)
	var took []time.Duration
	for range samples {
		begun := time.Now()
		res, err := pool.Call(ctx, "files", "read_file", json.RawMessage(`{"path":"a.txt"}`))
		if err != nil || res.IsError {
			return errors.Join(err, fmt.Errorf("the call failed: %s", res.Text))
		}
		took = append(took, time.Since(begun))
	}
	b.add("one call over stdio", fmt.Sprintf("p50 %s, p99 %s (opening the server: %s)",
		micros(quantile(took, 0.5)), micros(quantile(took, 0.99)), millis(opened)), "", unjudged)
	return nil
}
