package scripted

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"runnerd/llm"
	"runnerd/task"
)

// Parse reads a script. The error joins one line per mistake, each with file,
// line and column; name is the file's.
func Parse(name string, data []byte) (*Script, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("%s: %d bytes, at most %d are allowed", name, len(data), MaxSize)
	}
	root, err := document(name, data)
	if err != nil {
		return nil, err
	}
	p := &parser{file: name}
	s := p.script(root)
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// document reads the one YAML document that a script is.
func document(name string, data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0 {
		return nil, fmt.Errorf("%s: is empty: want a mapping with `turns:`", name)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s:%d: a second document begins here: want one", name, more.Line)
	}
	return doc.Content[0], nil
}

// parser walks nodes and collects every mistake.
type parser struct {
	file string
	errs []error
}

func (p *parser) fail(n *yaml.Node, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s:%d:%d: %s", p.file, n.Line, n.Column, fmt.Sprintf(format, args...)))
}

// fields maps the keys of a mapping to what reads their values.
type fields map[string]func(*yaml.Node)

func (p *parser) mapping(n *yaml.Node, what string, known fields) {
	if n.Kind != yaml.MappingNode {
		p.fail(n, "%s: want a mapping", what)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		read, ok := known[key.Value]
		switch {
		case !ok:
			p.fail(key, "%s: unknown key %q: want one of %s", what, key.Value, keys(known))
		case seen[key.Value]:
			p.fail(key, "%s: key %q is there twice", what, key.Value)
		case value.Kind == yaml.AliasNode:
			p.fail(value, "%s: aliases are not supported: write the value out", what)
		default:
			read(value)
		}
		seen[key.Value] = true
	}
}

func keys(known fields) string {
	var names []string
	for k := range known {
		names = append(names, k)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func (p *parser) script(n *yaml.Node) *Script {
	s := &Script{File: p.file}
	p.mapping(n, "script", fields{
		"loop": func(v *yaml.Node) {
			s.LoopLast = p.oneOf(v, "loop", "error", "last") == "last"
		},
		"turns": func(v *yaml.Node) {
			for _, item := range p.list(v, "turns") {
				s.Turns = append(s.Turns, p.turn(item))
			}
		},
	})
	if len(s.Turns) == 0 && len(p.errs) == 0 {
		p.fail(n, "script: want at least one turn under `turns:`")
	}
	return s
}

func (p *parser) turn(n *yaml.Node) Turn {
	t := Turn{Line: n.Line, Repeat: 1}
	said := false
	p.mapping(n, "turn", fields{
		"expect": func(v *yaml.Node) { t.Expect = p.expect(v) },
		"say":    func(v *yaml.Node) { t.Say, said = p.text(v, "say"), true },
		"call": func(v *yaml.Node) {
			for _, item := range p.list(v, "call") {
				t.Calls = append(t.Calls, p.call(item))
			}
		},
		"error":  func(v *yaml.Node) { t.Error = p.failure(v) },
		"usage":  func(v *yaml.Node) { t.Usage = p.usage(v) },
		"delay":  func(v *yaml.Node) { t.Delay = p.duration(v, "delay") },
		"repeat": func(v *yaml.Node) { t.Repeat = p.repeat(v) },
		"finish": func(v *yaml.Node) {
			t.Finish = llm.Finish(p.oneOf(v, "finish", string(llm.FinishStop), string(llm.FinishToolCalls),
				string(llm.FinishLength), string(llm.FinishContentFilter)))
		},
	})
	answers := said || len(t.Calls) > 0
	if n.Kind == yaml.MappingNode && answers == (t.Error != nil) {
		p.fail(n, "turn: want either `say` and `call`, or `error`")
	}
	return t
}

func (p *parser) expect(n *yaml.Node) Expect {
	e := Expect{Line: n.Line}
	strings := func(to *[]string, what string) func(*yaml.Node) {
		return func(v *yaml.Node) { *to = p.texts(v, what) }
	}
	p.mapping(n, "expect", fields{
		"last_contains":   strings(&e.LastContains, "last_contains"),
		"system_contains": strings(&e.SystemContains, "system_contains"),
		"results_contain": strings(&e.ResultsContain, "results_contain"),
		"not_offered":     strings(&e.NotOffered, "not_offered"),
		"offered":         func(v *yaml.Node) { e.Offered = task.ListOf(p.texts(v, "offered")...) },
		"last_matches": func(v *yaml.Node) {
			re, err := regexp.Compile(p.text(v, "last_matches"))
			if err != nil {
				p.fail(v, "last_matches: %v", err)
			}
			e.LastMatches = re
		},
	})
	return e
}

func (p *parser) call(n *yaml.Node) Call {
	c := Call{Args: "{}"}
	hasArgs := false
	p.mapping(n, "call", fields{
		"tool": func(v *yaml.Node) { c.Tool = p.text(v, "tool") },
		"id":   func(v *yaml.Node) { c.ID = p.text(v, "id") },
		"args": func(v *yaml.Node) { c.Args, hasArgs = p.args(v), true },
		"raw":  func(v *yaml.Node) { raw := p.text(v, "raw"); c.Raw = &raw },
	})
	if n.Kind == yaml.MappingNode && c.Tool == "" {
		p.fail(n, "call: want `tool:`, as connector/tool or as the model would write it")
	}
	if hasArgs && c.Raw != nil {
		p.fail(n, "call: want `args` or `raw`, not both")
	}
	return c
}

var kinds = []string{
	string(llm.RateLimited), string(llm.Overloaded), string(llm.ServerError), string(llm.Timeout),
	string(llm.Unreachable), string(llm.CutStream), string(llm.Malformed), string(llm.Auth),
	string(llm.NotFound), string(llm.BadRequest), string(llm.ContextOverflow),
	string(llm.ToolsUnsupported), string(llm.ContentFilter),
}

func (p *parser) failure(n *yaml.Node) *llm.Error {
	e := &llm.Error{}
	p.mapping(n, "error", fields{
		"kind":        func(v *yaml.Node) { e.Kind = llm.Kind(p.oneOf(v, "kind", kinds...)) },
		"status":      func(v *yaml.Node) { e.Status = int(p.number(v, "status", 599)) },
		"message":     func(v *yaml.Node) { e.Message = p.text(v, "message") },
		"retry_after": func(v *yaml.Node) { e.RetryAfter = p.duration(v, "retry_after") },
	})
	if n.Kind == yaml.MappingNode && e.Kind == "" && len(p.errs) == 0 {
		p.fail(n, "error: want `kind:`, one of %s", strings.Join(kinds, ", "))
	}
	return e
}

func (p *parser) usage(n *yaml.Node) task.Usage {
	var u task.Usage
	count := func(to *int64, what string) func(*yaml.Node) {
		return func(v *yaml.Node) { *to = p.number(v, what, 1<<40) }
	}
	p.mapping(n, "usage", fields{
		"input": count(&u.Input, "input"), "output": count(&u.Output, "output"),
		"cache_read": count(&u.CacheRead, "cache_read"), "cache_write": count(&u.CacheWrite, "cache_write"),
	})
	return u
}

func (p *parser) repeat(n *yaml.Node) int {
	if n.Kind == yaml.ScalarNode && n.Value == "always" {
		return Always
	}
	times, err := strconv.Atoi(p.text(n, "repeat"))
	if err != nil || times < 1 || times > 1_000_000 {
		p.fail(n, "repeat: want a number from 1 to 1000000, or always")
		return 1
	}
	return times
}

func (p *parser) duration(n *yaml.Node, what string) time.Duration {
	d, err := time.ParseDuration(p.text(n, what))
	if err != nil || d < 0 {
		p.fail(n, "%s: want a duration like 500ms, 2s or 1m", what)
		return 0
	}
	return d
}
