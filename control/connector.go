package control

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"runnerd/policy"
	"runnerd/task"
)

// ConnectorRow is a connector as `connectors --json` and the API show it. Its
// fields are those of connector.State, in the same order, so that one converts to
// the other.
type ConnectorRow struct {
	ID            string    `json:"id"`
	Kind          string    `json:"kind"` // builtin | stdio | http
	Up            bool      `json:"up"`
	Since         time.Time `json:"since,omitzero"`
	Err           string    `json:"error,omitempty"`
	PID           int       `json:"pid,omitempty"`
	Server        string    `json:"server,omitempty"`
	ServerVersion string    `json:"server_version,omitempty"`
	Protocol      string    `json:"protocol,omitempty"`
	Tools         int       `json:"tools"`
	Warnings      []string  `json:"warnings,omitempty"`
	Containment   string    `json:"containment,omitempty"`
	Stderr        string    `json:"stderr,omitempty"`
	Noise         int64     `json:"noise,omitempty"`
	Restarts      int       `json:"restarts"`
	Active        int       `json:"active_calls"`
	BreakerUntil  time.Time `json:"breaker_until,omitzero"`
}

// ToolRow is one line of `connectors tools --json`.
type ToolRow struct {
	Tool     string       `json:"tool"`
	Class    policy.Class `json:"class"`
	From     string       `json:"from"`
	Disabled bool         `json:"disabled"`
	// Pin says how the definition stands: accepted, changed, new, or unpinned
	// where nothing of the connector was ever accepted.
	Pin         string `json:"pin"`
	Description string `json:"description,omitempty"`
}

// The states of a pin.
const (
	PinAccepted = "accepted"
	PinChanged  = "changed"
	PinNew      = "new"
	PinUnpinned = "unpinned"
	PinRemoved  = "removed" // in a diff: accepted once, not listed now
)

// NewToolRows shows the tools of a connector; never nil.
func NewToolRows(rules policy.ConnectorRules, tools []task.Tool) []ToolRow {
	return rows(tools, func(t task.Tool) ToolRow {
		class, from := policy.Classify(rules, t)
		return ToolRow{
			Tool: t.Name, Class: class, From: from, Disabled: policy.Disabled(rules, t.Name),
			Pin: pinState(rules, t), Description: clip(t.Description, 200),
		}
	})
}

func pinState(rules policy.ConnectorRules, t task.Tool) string {
	if rules.Pins == nil {
		return PinUnpinned
	}
	hash, known := rules.Pins[t.Name]
	switch {
	case !known:
		return PinNew
	case hash != hashOf(t):
		return PinChanged
	}
	return PinAccepted
}

func hashOf(t task.Tool) string {
	if t.Hash != "" {
		return t.Hash
	}
	return t.DefinitionHash()
}

// DiffRow is a tool whose definition is not the accepted one.
type DiffRow struct {
	Tool   string `json:"tool"`
	Change string `json:"change"` // changed | new | removed
	// Fields are the parts that changed.
	Fields []string `json:"fields,omitempty"`
	// Hash is the present definition's, for AcceptRequest.Expect.
	Hash string `json:"hash,omitempty"`
	// Accepted and Now are the definitions, null where there is none.
	Accepted *task.Tool `json:"accepted"`
	Now      *task.Tool `json:"now"`
}

// DiffHash stands for a whole diff as a person saw it: which tools, and how each
// is defined now. What is accepted by it is what was seen, or nothing.
func DiffHash(diff []DiffRow) string {
	sum := sha256.New()
	for _, d := range diff {
		fmt.Fprintf(sum, "%s %q %s\n", d.Change, d.Tool, d.Hash)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// NewDiff compares the accepted definitions with what a connector lists now, in
// the order of names; never nil.
func NewDiff(accepted, now []task.Tool) []DiffRow {
	before, after := byName(accepted), byName(now)
	all := map[string]bool{}
	for name := range before {
		all[name] = true
	}
	for name := range after {
		all[name] = true
	}
	diff := []DiffRow{}
	for name := range all {
		old, new := before[name], after[name]
		switch {
		case old == nil:
			diff = append(diff, DiffRow{Tool: name, Change: PinNew, Hash: hashOf(*new), Now: new})
		case new == nil:
			diff = append(diff, DiffRow{Tool: name, Change: PinRemoved, Accepted: old})
		case hashOf(*old) != hashOf(*new):
			diff = append(diff, DiffRow{Tool: name, Change: PinChanged, Fields: changed(old, new), Hash: hashOf(*new), Accepted: old, Now: new})
		}
	}
	slices.SortFunc(diff, func(a, b DiffRow) int { return bytes.Compare([]byte(a.Tool), []byte(b.Tool)) })
	return diff
}

func byName(tools []task.Tool) map[string]*task.Tool {
	m := make(map[string]*task.Tool, len(tools))
	for i := range tools {
		m[tools[i].Name] = &tools[i]
	}
	return m
}

func changed(old, new *task.Tool) []string {
	var fields []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"title", old.Title == new.Title},
		{"description", old.Description == new.Description},
		{"inputSchema", bytes.Equal(compact(old.InputSchema), compact(new.InputSchema))},
		{"outputSchema", bytes.Equal(compact(old.OutputSchema), compact(new.OutputSchema))},
		{"annotations", bytes.Equal(asJSON(old.Annotations), asJSON(new.Annotations))},
	} {
		if !f.same {
			fields = append(fields, f.name)
		}
	}
	return fields
}

func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

func asJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return data
}

func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

func (s *Server) connectors(_ context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	return append([]ConnectorRow{}, s.o.Connectors.Status()...), nil
}

// rules are what policy knows of a connector, its pins included.
func (s *Server) rules(ctx context.Context, id string) (policy.ConnectorRules, []task.Tool, error) {
	f, err := s.o.Policies.Own(ctx, policy.ScopeConnector, id)
	if err != nil {
		return policy.ConnectorRules{}, nil, missing(err, "connector", id)
	}
	accepted, err := s.o.Policies.Definitions(ctx, id)
	if err != nil {
		return policy.ConnectorRules{}, nil, err
	}
	rules := policy.ConnectorRules{Classes: f.Classes, Disabled: f.DisabledTools.Items(), Flags: f.Flags.Items()}
	if f.TrustAnnotations != nil {
		rules.TrustAnnotations = *f.TrustAnnotations
	}
	if f.Pin != nil {
		rules.Pin = *f.Pin
	}
	if f.Origin != nil {
		rules.Origin = *f.Origin
	}
	for _, t := range accepted {
		if rules.Pins == nil {
			rules.Pins = map[string]string{}
		}
		rules.Pins[t.Name] = t.Hash
	}
	return rules, accepted, nil
}

// toolsOf lists a connector's tools now.
func (s *Server) toolsOf(ctx context.Context, id string) ([]task.Tool, error) {
	tools, err := s.o.Connectors.Tools(ctx, id)
	if err != nil {
		return nil, &Error{Status: http.StatusServiceUnavailable, Code: CodeUnavailable, Message: fmt.Sprintf("connector %s is down: %v", id, err)}
	}
	return tools, nil
}

func (s *Server) connectorTools(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	rules, _, err := s.rules(ctx, r.id())
	if err != nil {
		return nil, err
	}
	tools, err := s.toolsOf(ctx, r.id())
	return NewToolRows(rules, tools), err
}

func (s *Server) connectorDiff(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	_, accepted, err := s.rules(ctx, r.id())
	if err != nil {
		return nil, err
	}
	tools, err := s.toolsOf(ctx, r.id())
	return NewDiff(accepted, tools), err
}

// AcceptRequest names the definitions to accept, by what was seen of them: the
// hash of a diff, or of each tool that it changes.
type AcceptRequest struct {
	// Tools are the names; absent is every tool that is listed now, and forgets
	// those that are not; empty is none.
	Tools task.List[string] `json:"tools,omitzero"`
	// Hash is a DiffHash.
	Hash string `json:"hash,omitempty"`
	// Expect are hashes as a diff showed them, by tool: a definition that has
	// changed again since is not accepted.
	Expect map[string]string `json:"expect,omitempty"`
}

// AcceptView is what accepting answers.
type AcceptView struct {
	Connector string   `json:"connector"`
	Accepted  []string `json:"accepted"`
	// Left is what is still not as accepted.
	Left []DiffRow `json:"left"`
}

func (s *Server) acceptTools(ctx context.Context, r *request) (any, error) {
	fields, err := r.object(true, "tools", "expect", "hash")
	if err != nil {
		return nil, err
	}
	chosen, listed, err := names(fields, "tools")
	if err != nil {
		return nil, err
	}
	_, before, err := s.rules(ctx, r.id())
	if err != nil {
		return nil, err
	}
	tools, err := s.toolsOf(ctx, r.id())
	if err != nil {
		return nil, err
	}
	if err := asExpected(fields, tools); err != nil {
		return nil, err
	}
	if !listed || len(chosen) > 0 {
		if err := seen(fields, NewDiff(before, tools), chosen); err != nil {
			return nil, err
		}
		if err := s.accept(ctx, r, tools, chosen); err != nil {
			return nil, err
		}
	}
	_, accepted, err := s.rules(ctx, r.id())
	if !listed {
		for _, t := range tools {
			chosen = append(chosen, t.Name)
		}
	}
	return AcceptView{Connector: r.id(), Accepted: append([]string{}, chosen...), Left: NewDiff(accepted, tools)}, err
}

func (s *Server) accept(ctx context.Context, r *request, tools []task.Tool, chosen []string) error {
	for _, name := range chosen {
		if !slices.ContainsFunc(tools, func(t task.Tool) bool { return t.Name == name }) {
			return invalid(fmt.Errorf("tools: connector %s lists no tool %q", r.id(), clip(name, 80)))
		}
	}
	err := s.o.Policies.AcceptTools(ctx, r.id(), tools, chosen, r.by())
	if err != nil && !storeFailed(err) {
		return invalid(err)
	}
	return err
}

// seen refuses to accept what nobody looked at.
func seen(fields patch, diff []DiffRow, chosen []string) error {
	hash, err := textField(fields, "hash")
	if err != nil {
		return err
	}
	if hash != "" {
		if hash != DiffHash(diff) {
			return &Error{Status: http.StatusConflict, Code: CodeConflict, Message: "what it lists is not what that hash stands for any more", Hint: "look at the diff again"}
		}
		return nil
	}
	var expect map[string]string
	_ = json.Unmarshal(fields["expect"], &expect) // asExpected has read it
	for _, d := range diff {
		if (len(chosen) == 0 || slices.Contains(chosen, d.Tool)) && d.Hash != "" && expect[d.Tool] == "" {
			return invalid(fmt.Errorf("hash: want the hash of the diff that was looked at, or under expect that of tool %q", clip(d.Tool, 80)))
		}
	}
	return nil
}

// asExpected holds the definitions against the hashes that a person looked at.
func asExpected(fields patch, tools []task.Tool) error {
	raw, given := fields["expect"]
	if !given {
		return nil
	}
	var expect map[string]string
	if err := json.Unmarshal(raw, &expect); err != nil || expect == nil {
		return invalid(errors.New("expect: want an object of tool names to hashes"))
	}
	now := byName(tools)
	for name, hash := range expect {
		if t := now[name]; t == nil || hashOf(*t) != hash {
			return &Error{Status: http.StatusConflict, Code: CodeConflict, Message: fmt.Sprintf("tool %q is not as expected any more", clip(name, 80)), Hint: "look at the diff again"}
		}
	}
	return nil
}
