package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"runnerd/task"
)

// A sample is two entries of a kind of file that differ in one key alone.
type sample struct{ with, without string }

// samples has one for each key of each kind of file. A key without one fails the
// test: a new key comes with its line here.
var samples = map[kind]map[string]sample{
	kindTask: {
		"enabled":              {"enabled: false", ""},
		"schedule":             {"schedule: '@daily'", ""},
		"timezone":             {"timezone: Asia/Tokyo", ""},
		"day_match":            {"day_match: any", ""},
		"model":                {"model: priced", ""},
		"project":              {"project: ops", ""},
		"connectors":           {"connectors: [files]", ""},
		"tools":                {"tools: [files]", ""},
		"allow":                {"allow: [memory/remember]", ""},
		"deny":                 {"deny: [memory/forget]", ""},
		"on_ask":               {"on_ask: park", ""},
		"approval_ttl":         {"approval_ttl: 1h", ""},
		"session":              {"session: fresh", ""},
		"catch_up":             {"catch_up: all", ""},
		"catch_up_window":      {"catch_up_window: 1h", ""},
		"overlap":              {"overlap: queue", ""},
		"jitter":               {"jitter: 1m", ""},
		"require":              {"require: [files]", ""},
		"optional":             {"optional: [files]", ""},
		"report":               {"report: required", ""},
		"accept_risk":          {"accept_risk: because", ""},
		"ping":                 {"ping: 'https://ping.example.com/x'", ""},
		"output_schema":        {"output_schema: {type: object}", ""},
		"allow.tool":           {"allow: [{tool: memory/remember}]", ""},
		"deny.tool":            {"deny: [{tool: memory/forget}]", ""},
		"retry.attempts":       {"retry: {attempts: 3}", ""},
		"retry.backoff":        {"retry: {backoff: 2m}", ""},
		"deliver.to":           {"deliver: [{to: file, path: /srv/a}]", ""},
		"deliver.when":         {"deliver: [{to: file, path: /srv/a, when: failure}]", "deliver: [{to: file, path: /srv/a}]"},
		"deliver.when_tainted": {"deliver: [{to: file, path: /srv/a, when_tainted: hold}]", "deliver: [{to: file, path: /srv/a}]"},
		"deliver.path":         {"deliver: [{to: file, path: /srv/b}]", "deliver: [{to: file, path: /srv/a}]"},
		"deliver.command":      {"deliver: [{to: command, command: [x]}]", ""},
		"deliver.url":          {"deliver: [{to: notify, url: 'logger://'}]", ""},
		"deliver.timeout":      {"deliver: [{to: file, path: /srv/a, timeout: 1s}]", "deliver: [{to: file, path: /srv/a}]"},
		"prompt":               {"prompt: other", "prompt: p"},
	},
	kindModels: {
		"base_url":          {"base_url: 'http://127.0.0.1:1/v1'", ""},
		"api_key":           {"api_key: '${credential:k}'", ""},
		"tool_mode":         {"tool_mode: fenced", ""},
		"context_tokens":    {"context_tokens: 1000", ""},
		"max_output_tokens": {"max_output_tokens: 100", ""},
		"fallback":          {"fallback: [two]", ""},
		"timeout":           {"timeout: 1m", ""},
		"provider":          {"provider: anthropic, model: m", "provider: openai, model: m"},
		"model":             {"provider: openai, model: other", "provider: openai, model: m"},
		"command":           {"provider: command, command: [x]", "provider: command, command: [y]"},
		"script":            {"provider: scripted, script: x.yaml", "provider: scripted, script: y.yaml"},
		"price.input":       {"price: {input: 1, output: 2}", "price: {input: 2, output: 2}"},
		"price.output":      {"price: {input: 2, output: 1}", "price: {input: 2, output: 2}"},
		"price.cache_read":  {"price: {input: 2, output: 2, cache_read: 1}", "price: {input: 2, output: 2}"},
		"price.cache_write": {"price: {input: 2, output: 2, cache_write: 1}", "price: {input: 2, output: 2}"},
	},
	kindConnectors: {
		"type":              {"type: stdio", ""},
		"args":              {"args: [a]", ""},
		"env":               {"env: {A: b}", ""},
		"cwd":               {"cwd: /srv", ""},
		"root":              {"root: /srv/x", ""},
		"trust_annotations": {"trust_annotations: true", ""},
		"classes":           {"classes: {a: read}", ""},
		"disabled_tools":    {"disabled_tools: [a]", ""},
		"flags":             {"flags: [private]", ""},
		"tool_flags":        {"tool_flags: {a: [private]}", ""},
		"pin":               {"pin: strict", ""},
		"disabled":          {"disabled: true", ""},
		"timeout.connect":   {"timeout: {connect: 1s}", ""},
		"timeout.call":      {"timeout: {call: 1s}", ""},
		"builtin":           {"builtin: memory", "builtin: fetch"},
		"command":           {"command: y", "command: x"},
		"url":               {"url: 'https://x.example.com'", "url: 'https://y.example.com'"},
		"headers":           {"url: 'https://y.example.com', headers: {A: b}", "url: 'https://y.example.com'"},
		"allow_private":     {"url: 'https://y.example.com', allow_private: true", "url: 'https://y.example.com'"},
	},
	kindProjects: {
		"instructions": {"instructions: Be brief.", ""},
		"connectors":   {"connectors: [files]", ""},
	},
	kindDaemon: {
		"notify.to":         {"notify: [{to: notify, url: 'logger://'}]", ""},
		"notify.url":        {"notify: [{url: 'logger://x'}]", "notify: [{url: 'logger://'}]"},
		"notify.command":    {"notify: [{to: command, command: [x]}]", ""},
		"notify.events":     {"notify: [{url: 'logger://', events: [failure]}]", "notify: [{url: 'logger://'}]"},
		"deny":              {"deny: [memory/forget]", ""},
		"deny.tool":         {"deny: [{tool: memory/forget}]", ""},
		"retention.age":     {"retention: {age: 1h}", ""},
		"retention.runs":    {"retention: {runs: 3}", ""},
		"retention.results": {"retention: {results: 1MB}", ""},
		"ping.url":          {"ping: {url: 'https://ping.example.com/x'}", ""},
		"ping.every":        {"ping: {url: 'https://ping.example.com/x', every: 2m}", "ping: {url: 'https://ping.example.com/x'}"},
		"access.read":       {"access: {read: [a]}", ""},
		"access.run":        {"access: {run: [a]}", ""},
		"access.approve":    {"access: {approve: [a]}", ""},
	},
}

// limitValues are the limits of a run and of a day, which tasks and projects share; the
// daemon has those of a day.
var limitValues = map[string]string{
	"steps": "3", "tool_calls": "3", "tokens": "3", "wall": "1m", "cost": "1",
	"tokens_per_day": "3", "runs_per_day": "3", "cost_per_day": "1",
}

func init() {
	for name, value := range limitValues {
		limits := "limits: {" + name + ": " + value + "}"
		samples[kindTask]["limits."+name] = sample{"model: priced, " + limits, "model: priced"}
		samples[kindProjects]["limits."+name] = sample{limits, ""}
		if strings.HasSuffix(name, "_per_day") {
			samples[kindDaemon]["limits."+name] = sample{limits, ""}
		}
	}
}

// idle are keys that change nothing by themselves, each with its reason.
var idle = map[kind]map[string]string{
	kindConnectors: {"type": "other hosts write it; it is checked against command and url"},
}

// places are where an entry of each kind stands, and what it holds beside the
// sample unless the sample has one of the keys itself.
var places = map[kind]struct {
	file, text, beside string
	unless             []string
}{
	kindTask:       {"tasks/sample.yaml", "{%s}", "prompt: p, schedule: 0 9 1 * *", nil},
	kindModels:     {"models.yaml", "models: {default: {provider: ollama, model: d}, two: {provider: openai, model: n}, priced: {%s}}", "provider: openai, model: m", []string{"provider:"}},
	kindConnectors: {"connectors.d/sample.yaml", "mcpServers: {sample: {%s}}", "command: x", []string{"command:", "url:", "builtin:"}},
	kindProjects:   {"projects.yaml", "projects: {ops: {%s}}", "", nil},
	kindDaemon:     {"runnerd.yaml", "{%s}", "", nil},
}

func fileWith(k kind, entry string) (file, text string) {
	p := places[k]
	switch {
	case k == kindTask:
		for pair := range strings.SplitSeq(p.beside, ", ") {
			if name, _, _ := strings.Cut(pair, ":"); !strings.HasPrefix(entry, name+":") {
				entry += ", " + pair
			}
		}
	case !slices.ContainsFunc(p.unless, func(key string) bool { return strings.HasPrefix(entry, key) }):
		entry += ", " + p.beside
	}
	return p.file, fmt.Sprintf(p.text, strings.Trim(entry, ", ")) + "\n"
}

// Every key that a file may hold does something: with it a load returns another set.
func TestEveryKeyDoesSomething(t *testing.T) {
	for _, name := range Kinds() {
		k := kind(name)
		for _, key := range schemaKeys(t, k) {
			if strings.HasPrefix(key, "defaults") {
				continue // the keys of a task
			}
			t.Run(name+"/"+key, func(t *testing.T) {
				t.Parallel()
				one, ok := samples[k][key]
				switch {
				case !ok:
					t.Fatalf("no sample for %s of %s: add one that differs from the default", key, k)
				case idle[k][key] != "":
					return
				}
				with, without := loaded(t, one, k)
				if reflect.DeepEqual(with, without) {
					t.Errorf("%s: %s changes nothing", key, one.with)
				}
			})
		}
		for key := range samples[k] {
			if !slices.Contains(schemaKeys(t, k), key) {
				t.Errorf("%s is no key of %s", key, k)
			}
		}
	}
}

func loaded(t *testing.T, one sample, k kind) (with, without *Set) {
	read := func(file, text string) *Set {
		d := newDir(t, base(nil))
		d.write(file, text)
		s := load(t, d.loader())
		if len(s.Problems) > 0 {
			t.Fatalf("%s: %q\n%s", file, texts(s.Problems), text)
		}
		return &Set{Tasks: s.Tasks, Models: withoutDir(s, d), Connectors: s.Connectors, Projects: s.Projects, Daemon: s.Daemon}
	}
	return read(fileWith(k, one.with)), read(fileWith(k, one.without))
}

// withoutDir takes the directory out of paths, which differ between two loads.
func withoutDir(s *Set, d dir) map[string]task.ModelSpec {
	out := maps.Clone(s.Models)
	for name, m := range out {
		m.Script = strings.TrimPrefix(m.Script, d.path)
		out[name] = m
	}
	return out
}

// schemaKeys are the keys of a kind of file, those of lists and mappings of keys
// with a dot.
func schemaKeys(t *testing.T, k kind) []string {
	text, err := Schema(string(k))
	if err != nil {
		t.Fatal(err)
	}
	var root node
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	if top := map[kind]string{kindModels: "models", kindConnectors: "mcpServers", kindProjects: "projects"}[k]; top != "" {
		root = *root.Properties[top].each()
	}
	var keys []string
	for name, n := range root.Properties {
		inner := n
		if inner.Items != nil {
			inner = *inner.Items
		}
		switch {
		case len(inner.Properties) == 0, name == "output_schema":
			keys = append(keys, name)
		case name == "allow" || name == "deny":
			keys = append(keys, name, name+".tool")
		default:
			for part := range inner.Properties {
				keys = append(keys, name+"."+part)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

type node struct {
	Properties           map[string]node `json:"properties"`
	Items                *node           `json:"items"`
	AdditionalProperties json.RawMessage `json:"additionalProperties"`
}

func (n node) each() *node {
	var inner node
	if json.Unmarshal(n.AdditionalProperties, &inner) != nil {
		return &node{}
	}
	return &inner
}

// The README's table of task keys and the schema name the same keys, and what it
// shows of runnerd.yaml is good and names every key of that file.
func TestReadmeNamesEveryKey(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "Keys of a task:\n")
	table, after, _ := strings.Cut(table, "\n`runnerd.yaml`, all of it optional:\n")
	var told []string
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
				told = append(told, m[1])
			}
		}
	}
	first := func(k kind) (names []string) {
		for _, key := range schemaKeys(t, k) {
			name, _, _ := strings.Cut(key, ".")
			names = append(names, name)
		}
		return slices.Compact(names)
	}
	slices.Sort(told)
	want := slices.DeleteFunc(first(kindTask), func(name string) bool { return name == "prompt" })
	if !slices.Equal(told, want) {
		t.Errorf("README.md names the task keys\n%v, the schema\n%v", told, want)
	}
	var block strings.Builder
	for line := range strings.Lines(strings.TrimLeft(after, "\n")) {
		if !strings.HasPrefix(line, "    ") {
			break
		}
		block.WriteString(strings.TrimPrefix(line, "    "))
	}
	s := load(t, newDir(t, base(map[string]string{"runnerd.yaml": block.String()})).loader())
	if len(s.Problems) > 0 || len(s.Accepted) == 0 {
		t.Errorf("%q in\n%s", texts(s.Problems), block.String())
	}
	for _, name := range first(kindDaemon) {
		if !strings.Contains("\n"+block.String(), "\n"+name+":") {
			t.Errorf("README.md does not show %s of runnerd.yaml", name)
		}
	}
	for key := range samples[kindTask] {
		if limit, ok := strings.CutPrefix(key, "limits."); ok && !strings.Contains(table, "`"+limit+"`") {
			t.Errorf("README.md does not name limits.%s", limit)
		}
	}
}
