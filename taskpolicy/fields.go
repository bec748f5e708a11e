package taskpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"runnerd/policy"
	"runnerd/task"
)

// columns are the fields of a row, in the order of the table.
var columns = []string{
	"connectors", "tools", "allow", "deny", "on_ask", "approval_ttl", "limits", "accept_risk",
	"classes", "disabled_tools", "trust_annotations", "flags", "pin", "origin",
}

// fieldsOf says which fields each scope has.
var fieldsOf = map[policy.Scope][]string{
	policy.ScopeTask:      {"connectors", "tools", "allow", "deny", "on_ask", "approval_ttl", "limits", "accept_risk"},
	policy.ScopeSession:   {"connectors"},
	policy.ScopeProject:   {"connectors", "limits"},
	policy.ScopeConnector: {"classes", "disabled_tools", "trust_annotations", "flags", "pin", "origin"},
	scopeDaemon:           {"limits", "deny"},
}

// maxFieldBytes bounds one stored field.
const maxFieldBytes = 256 << 10

// encode turns the fields of a file into column texts; absent ones are missing.
func encode(scope policy.Scope, f *policy.Fields) (map[string]string, error) {
	values := map[string]any{}
	put := func(name string, declared bool, v any) {
		if declared {
			values[name] = v
		}
	}
	put("connectors", f.Connectors.Declared(), f.Connectors)
	put("tools", f.Tools.Declared(), f.Tools)
	put("allow", f.Allow.Declared(), f.Allow)
	put("deny", f.Deny.Declared(), f.Deny)
	put("on_ask", f.OnAsk != nil, f.OnAsk)
	if f.ApprovalTTL != nil {
		values["approval_ttl"] = f.ApprovalTTL.String()
	}
	put("limits", f.Limits != nil, f.Limits)
	put("accept_risk", f.AcceptRisk != nil, f.AcceptRisk)
	put("classes", f.Classes != nil, f.Classes)
	put("disabled_tools", f.DisabledTools.Declared(), f.DisabledTools)
	put("trust_annotations", f.TrustAnnotations != nil, f.TrustAnnotations)
	put("flags", f.Flags.Declared(), f.Flags)
	put("pin", f.Pin != nil, f.Pin)
	put("origin", f.Origin != nil, f.Origin)
	out := make(map[string]string, len(values))
	for name, v := range values {
		if !slices.Contains(fieldsOf[scope], name) {
			return nil, fmt.Errorf("field %s does not belong to a %s", name, scope)
		}
		data, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", name, err)
		}
		out[name] = string(data)
	}
	return out, nil
}

// field reads a patch's value for one field and answers it as it is stored, nil for
// a value that counts as absent, with what was dropped on the way.
func field(name string, raw json.RawMessage, known map[string]bool) (text *string, warnings []string, err error) {
	if len(raw) > maxFieldBytes {
		return nil, nil, fmt.Errorf("it has %d bytes, more than %d", len(raw), maxFieldBytes)
	}
	var v any
	switch name {
	case "connectors":
		v, warnings, err = idList(raw, known)
	case "tools":
		var list task.List[string]
		if list, warnings, err = idList(raw, known); errors.Is(err, errNoList) {
			return nil, []string{"tools: want a list of connector ids or null; the value counts as absent"}, nil
		}
		v = list
	case "origin":
		err = errors.New("it is copied from the connector's own file entry and cannot be set")
	default:
		v, err = typed(name, raw)
	}
	if err != nil {
		return nil, warnings, err
	}
	for i := range warnings {
		warnings[i] = name + ": " + warnings[i]
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, warnings, err
	}
	s := string(data)
	return &s, warnings, nil
}

// typed reads the fields where a wrong type is an error, and checks their values.
func typed(name string, raw json.RawMessage) (any, error) {
	switch name {
	case "allow", "deny":
		return parseLines(name, raw)
	case "on_ask":
		return oneOf(raw, policy.OnAskDeny, policy.OnAskPark)
	case "pin":
		return oneOf(raw, policy.PinFirstUse, policy.PinStrict)
	case "approval_ttl":
		s, err := decode[string](raw, `a duration such as "12h"`)
		if err != nil {
			return nil, err
		}
		d, err := parseTTL(s)
		return d.String(), err
	case "limits":
		return decode[policy.Limits](raw, "an object of limits")
	case "accept_risk":
		return decode[string](raw, "a sentence that says why")
	case "classes":
		return parseClasses(raw)
	case "disabled_tools":
		return parseDisabled(raw)
	case "trust_annotations":
		return decode[bool](raw, "true or false")
	case "flags":
		return parseFlags(raw)
	}
	return nil, errors.New("no such field")
}

func decode[T any](raw json.RawMessage, want string) (T, error) {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("want %s: %w", want, err)
	}
	return v, nil
}

func oneOf[T ~string](raw json.RawMessage, options ...T) (T, error) {
	v, err := decode[T](raw, "a string")
	if err == nil && !slices.Contains(options, v) {
		err = fmt.Errorf("want one of %v, have %q", options, v)
	}
	return v, err
}

func parseTTL(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("want a duration above 0 such as 12h, have %q", s)
	}
	return d, nil
}

func parseClasses(raw json.RawMessage) (map[string]policy.Class, error) {
	classes, err := decode[map[string]policy.Class](raw, "an object of tool names or globs to read, write or exec")
	if err != nil {
		return nil, err
	}
	for name, class := range classes {
		switch class {
		case policy.ClassRead, policy.ClassWrite, policy.ClassExec:
		default:
			return nil, fmt.Errorf("%s: want read, write or exec, have %q", name, class)
		}
	}
	return classes, policy.ConnectorRules{Classes: classes}.Check()
}

// parseLines reads lines of the field, allow or deny.
func parseLines(field string, raw json.RawMessage) (task.List[policy.Grant], error) {
	list, err := decode[task.List[policy.Grant]](raw, `a list of "connector/tool" or {tool: connector/tool, where: …}`)
	for i := range list.Items() {
		if err == nil {
			err = list.Items()[i].Settle(field)
		}
	}
	return list, err
}

func parseDisabled(raw json.RawMessage) (task.List[string], error) {
	list, err := decode[task.List[string]](raw, "a list of tool names")
	if err == nil {
		err = policy.ConnectorRules{Disabled: list.Items()}.Check()
	}
	return list, err
}

// parseFlags takes "untrusted", "search:untrusted" and {tool, kind} alike.
func parseFlags(raw json.RawMessage) (task.List[policy.Flag], error) {
	const want = "a list of untrusted, private, egress, or tool:flag"
	items, err := decode[[]json.RawMessage](raw, want)
	if err != nil {
		return task.List[policy.Flag]{}, err
	}
	flags := make([]policy.Flag, 0, len(items))
	for _, item := range items {
		var f policy.Flag
		if s, err := decode[string](item, want); err == nil {
			f.Kind = s
			if i := strings.LastIndexByte(s, ':'); i >= 0 {
				f.Tool, f.Kind = s[:i], s[i+1:]
			}
		} else if f, err = decode[policy.Flag](item, want); err != nil {
			return task.List[policy.Flag]{}, err
		}
		if f.Kind != policy.FlagUntrusted && f.Kind != policy.FlagPrivate && f.Kind != policy.FlagEgress {
			return task.List[policy.Flag]{}, fmt.Errorf("want %s, have %q", want, f.Kind)
		}
		flags = append(flags, f)
	}
	return task.ListOf(flags...), policy.ConnectorRules{Flags: flags}.Check()
}

// errNoList says that a list of ids is of another type altogether.
var errNoList = errors.New("want a list of connector ids or null")

// idList reads a list of connector ids: entries of another type and, where known
// is given, unknown ids are dropped with a warning; order is kept, duplicates go.
func idList(raw []byte, known map[string]bool) (list task.List[string], warnings []string, err error) {
	var items []any
	if err := json.Unmarshal(raw, &items); err != nil || items == nil {
		return list, nil, errNoList
	}
	ids := make([]string, 0, len(items))
	for _, item := range items {
		id, isText := item.(string)
		switch {
		case !isText:
			warnings = append(warnings, fmt.Sprintf("%s is no connector id and was dropped", clip(fmt.Sprint(item))))
		case strings.Contains(id, "/"):
			connector, _, _ := strings.Cut(id, "/")
			return list, nil, fmt.Errorf("%q: this lists connectors, not their tools; write %q (single tools are switched off with disabled_tools or deny)", clip(id), clip(connector))
		case known != nil && !known[id]:
			warnings = append(warnings, fmt.Sprintf("connector %q does not exist and was dropped", clip(id)))
		case !slices.Contains(ids, id):
			ids = append(ids, id)
		}
	}
	return task.ListOf(ids...), warnings, nil
}

func clip(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
