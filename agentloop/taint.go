package agentloop

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"runnerd/policy"
	"runnerd/task"
)

// taintAhead keeps, before a run that has read untrusted text sends a call that may
// change a builtin store, which entries the call is about: if it is never heard of
// again they have been written all the same, and nobody reads them in between.
func (a *attempt) taintAhead(ctx context.Context, call task.ToolCall, d policy.Decision) error {
	if d.Store == "" || d.Class == policy.ClassRead || !a.run.HasMark(task.MarkUntrusted) {
		return nil
	}
	entries := a.aims(call, d)
	if len(entries) == 0 {
		return nil
	}
	if err := a.Store.Touch(ctx, a.run.ID, true, task.Touched{Added: entries}); err != nil {
		return fmt.Errorf("store tainted entries: %w", err)
	}
	return nil
}

// aims are the entries that the arguments of a call name. A note is known by its
// connector until the server has told its file.
func (a *attempt) aims(call task.ToolCall, d policy.Decision) (entries []string) {
	var args struct{ Path, To, Key string }
	if json.Unmarshal([]byte(call.Arguments), &args) != nil {
		return nil // policy has let it through, so this does not happen
	}
	if d.Store == policy.StoreMemory {
		return []string{noteOf(d.Connector, args.Key)}
	}
	for _, path := range []string{args.Path, args.To} {
		if real, err := a.Resolve(d.Connector, path); path != "" && err == nil {
			entries = append(entries, real)
		}
	}
	return entries
}

func noteOf(connector, key string) string { return connector + "#" + strings.TrimSpace(key) }

// touch follows what a call of a builtin store read and changed: the run is marked
// if an entry that it read is tainted, and what it changed is kept. It is durable
// before the answer is.
func (a *attempt) touch(ctx context.Context, d policy.Decision, call task.ToolCall, result task.ToolResult) error {
	if d.Store == "" || result.Touched == nil {
		return nil
	}
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.FinalWrites)
	defer cancel()
	t := *result.Touched
	err := insist(final, func() error { return a.readTainted(final, d, t) })
	if err == nil && t.Changed() {
		if d.Store == policy.StoreMemory {
			t.Gone = append(t.Gone, a.aims(call, d)...) // its file is known now
		}
		err = insist(final, func() error { return a.Store.Touch(final, a.run.ID, a.run.HasMark(task.MarkUntrusted), t) })
	}
	if err != nil {
		return fmt.Errorf("follow entries of %s: %w", d.Connector, err)
	}
	return nil
}

func (a *attempt) readTainted(ctx context.Context, d policy.Decision, t task.Touched) error {
	read := t.Read
	if d.Store == policy.StoreMemory {
		for _, entry := range t.Read {
			if _, key, ok := strings.Cut(entry, "#"); ok {
				read = append(read[:len(read):len(read)], noteOf(d.Connector, key))
			}
		}
	}
	by, err := a.Store.Tainted(ctx, read)
	if err != nil || by == "" || by == a.run.ID {
		return err
	}
	a.run.Mark(untrustedFrom(d.Connector + "/" + d.Tool + ", written by run " + by))
	return a.Store.Update(ctx, a.run)
}
