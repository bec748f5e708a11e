package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"text/template"

	"runnerd/task"
)

// taskKeys are the keys that a task and `defaults:` share. A zero field says
// nothing.
type taskKeys struct {
	Enabled       *bool           `json:"enabled,omitempty" default:"true" jsonschema:"whether the schedule fires; a disabled task can still be run by hand"`
	Schedule      *stringList     `json:"schedule,omitempty" example:"30 7 * * mon-fri" jsonschema:"when the task is due: five cron fields, @hourly @daily @weekly @monthly @yearly, every 15m, or at 2026-12-24T18:00; a list is the union of its instants; without one the task runs only by hand"`
	Timezone      string          `json:"timezone,omitempty" example:"Europe/Berlin" jsonschema:"IANA zone that the schedule is read in; default: the daemon's"`
	DayMatch      string          `json:"day_match,omitempty" enum:"any,all" jsonschema:"whether a day must match any or all of day-of-month and day-of-week where both are restricted"`
	Model         string          `json:"model,omitempty" default:"default" jsonschema:"name of an entry in models.yaml"`
	Project       string          `json:"project,omitempty" jsonschema:"name of an entry in projects.yaml"`
	Connectors    *[]string       `json:"connectors,omitempty" jsonschema:"connectors that the task can reach; absent: the project's, else all; []: none"`
	Tools         *[]string       `json:"tools,omitempty" jsonschema:"connectors whose tools are offered to the model; absent: each reachable connector with a read tool; []: none"`
	Allow         *[]grantLine    `json:"allow,omitempty" example:"[\"calendar/create_event\"]" jsonschema:"write and exec calls that need no approval: connector/tool, or {tool, where, times}; a line with where permits no argument that it does not name"`
	Deny          *[]grantLine    `json:"deny,omitempty" example:"[\"mail/send_*\"]" jsonschema:"calls that are refused, reads included: connector/tool, or {tool, where}"`
	OnAsk         string          `json:"on_ask,omitempty" enum:"deny,park" default:"deny" jsonschema:"what becomes of a call that needs a person: refuse it, or park the run until someone decides"`
	ApprovalTTL   *duration       `json:"approval_ttl,omitempty" title:"Approval time to live" default:"24h" jsonschema:"how long a parked call waits for a decision"`
	Session       string          `json:"session,omitempty" enum:"keep,fresh,last-output" default:"keep" jsonschema:"what a run sees of the task's conversation so far"`
	CatchUp       string          `json:"catch_up,omitempty" enum:"skip,once,all" default:"once" jsonschema:"what becomes of instants that passed while nobody was there"`
	CatchUpWindow *duration       `json:"catch_up_window,omitempty" default:"24h" jsonschema:"how old an instant may be and still be caught up"`
	Overlap       string          `json:"overlap,omitempty" enum:"skip,queue,replace" default:"skip" jsonschema:"what becomes of an instant while an earlier run is active"`
	Jitter        *duration       `json:"jitter,omitempty" default:"0s" jsonschema:"spread starts over this long; stable for a task on a host"`
	Retry         *retryKeys      `json:"retry,omitempty" jsonschema:"further attempts of a run that failed"`
	Limits        *limitKeys      `json:"limits,omitempty" jsonschema:"what a run and a day may spend"`
	Deliver       *[]deliveryKeys `json:"deliver,omitempty" jsonschema:"where the result goes"`
	Require       *[]string       `json:"require,omitempty" jsonschema:"connectors that must be up, else the run fails before it spends a token"`
	Optional      *[]string       `json:"optional,omitempty" jsonschema:"connectors that the task names in connectors, tools or allow and that may be down all the same"`
	Report        string          `json:"report,omitempty" enum:"required" jsonschema:"required: a run in which the agent does not call the report tool fails"`
	AcceptRisk    string          `json:"accept_risk,omitempty" jsonschema:"why this task may read untrusted input, see private data and send outward"`
	Ping          string          `json:"ping,omitempty" jsonschema:"URL that is called when a run ends well, for a dead man's switch"`
	OutputSchema  object          `json:"output_schema,omitempty" jsonschema:"JSON Schema that the final answer must fit"`
}

type taskFile struct {
	taskKeys
	Prompt string `json:"prompt,omitempty" jsonschema:"what the agent is told; in tasks/NAME.md it is the text below the front matter"`
}

type retryKeys struct {
	Attempts *int      `json:"attempts,omitempty" min:"1" default:"2" jsonschema:"attempts in all, the first included"`
	Backoff  *duration `json:"backoff,omitempty" default:"1m" jsonschema:"pause before the next attempt"`
}

type limitKeys struct {
	Steps        *int      `json:"steps,omitempty" min:"1" default:"25" jsonschema:"model calls in a run"`
	ToolCalls    *int      `json:"tool_calls,omitempty" min:"0" default:"50" jsonschema:"tool calls in a run"`
	Tokens       *int64    `json:"tokens,omitempty" min:"1" default:"500000" jsonschema:"tokens in a run, input and output"`
	Cost         *float64  `json:"cost,omitempty" min:"0" jsonschema:"money in a run, in the currency that models.yaml prices in"`
	Wall         *duration `json:"wall,omitempty" default:"15m" jsonschema:"worker time of a run"`
	CostPerDay   *float64  `json:"cost_per_day,omitempty" min:"0" jsonschema:"money in a day"`
	TokensPerDay *int64    `json:"tokens_per_day,omitempty" min:"1" jsonschema:"tokens in a day"`
	RunsPerDay   *int      `json:"runs_per_day,omitempty" min:"1" jsonschema:"runs in a day"`
}

type deliveryKeys struct {
	To          string    `json:"to" enum:"file,command,notify" jsonschema:"what kind of destination this is"`
	When        string    `json:"when,omitempty" enum:"always,failure,attention,changed,not-empty" default:"always" jsonschema:"which results go there"`
	WhenTainted string    `json:"when_tainted,omitempty" enum:"deliver,hold" default:"deliver" jsonschema:"what becomes of a result whose run has read untrusted text: hold keeps it until a person lets it go with runnerd approve"`
	Path        string    `json:"path,omitempty" jsonschema:"of a file: an absolute path, a Go template over the run"`
	Command     *[]string `json:"command,omitempty" empty:"ok" jsonschema:"of a command: program and arguments; the result is its standard input"`
	URL         string    `json:"url,omitempty" title:"URL" example:"${credential:ntfy_url}" jsonschema:"of a notification: a shoutrrr URL"`
	Timeout     *duration `json:"timeout,omitempty" default:"30s" jsonschema:"deadline of one attempt"`
}

// stringList reads one string as a list of one.
type stringList []string

func (l *stringList) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*l = stringList{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(l))
}

// object is free-form JSON.
type object map[string]any

// over returns k with what d says where k says nothing; limits and retry are
// merged key by key.
func (k taskKeys) over(d taskKeys) taskKeys {
	fill(reflect.ValueOf(&k).Elem(), reflect.ValueOf(d))
	return k
}

func fill(dst, src reflect.Value) {
	for i := range dst.NumField() {
		to, from := dst.Field(i), src.Field(i)
		switch {
		case to.IsZero():
			to.Set(from)
		case to.Kind() == reflect.Pointer && to.Elem().Kind() == reflect.Struct && !from.IsNil():
			merged := reflect.New(to.Type().Elem())
			merged.Elem().Set(to.Elem())
			fill(merged.Elem(), from.Elem())
			to.Set(merged)
		}
	}
}

// splitFrontMatter parts tasks/NAME.md into its YAML and its prompt.
func splitFrontMatter(src source) (yaml, prompt source, problem *Problem) {
	lines := bytes.SplitAfter(src.text, []byte("\n"))
	if strings.TrimRight(string(lines[0]), " \t\r\n") != "---" {
		p := src.problem(mark{1, 1}, "no front matter", "a first line ---, the task's keys, a line ---, then the prompt", "")
		return yaml, prompt, &p
	}
	offset := len(lines[0])
	for i, line := range lines[1:] {
		end := strings.TrimRight(string(line), " \t\r\n")
		if end == "---" || end == "..." {
			yaml = source{src.file, src.text[len(lines[0]):offset], 2}
			prompt = source{src.file, src.text[offset+len(line):], i + 3}
			return yaml, prompt, nil
		}
		offset += len(line)
	}
	p := src.problem(mark{1, 1}, "front matter without an end", "a line --- between the keys and the prompt", "")
	return yaml, prompt, &p
}

// taskID is the id of a task file, or a complaint about its name.
func taskID(rel string) (string, *Problem) {
	id := strings.TrimSuffix(path.Base(rel), path.Ext(rel))
	if task.ValidID(id) {
		return id, nil
	}
	return id, &Problem{
		File: rel, What: "file name " + quoted(id) + " cannot be a task's id",
		Expected: "1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit", Hint: "rename the file",
	}
}

// checkTask makes the checks that need no other file.
func (p *parsed) checkTask(prompt source) {
	f, isMarkdown := p.task, path.Ext(p.rel) == ".md"
	if _, bad := taskID(p.rel); bad != nil {
		p.problems = append(p.problems, *bad)
	}
	at := p.tree.at("prompt")
	if isMarkdown {
		if p.tree.has("prompt") {
			p.complainKey([]string{"prompt"}, "unknown key \"prompt\"", "the prompt as the text below the front matter", "")
		}
		f.Prompt = string(prompt.text)
		at = mark{int32(prompt.firstLine), 1}
	}
	raw := strings.ReplaceAll(f.Prompt, "\r\n", "\n")
	f.Prompt = strings.TrimSpace(raw)
	lead := raw[:len(raw)-len(strings.TrimLeft(raw, " \t\r\n"))]
	if f.Prompt == "" && (isMarkdown || !p.partial && !p.tree.has("prompt")) {
		what := "the task has no prompt"
		expected := "a key prompt"
		if isMarkdown {
			expected = "text below the front matter"
		}
		p.problems = append(p.problems, p.tree.src.problem(at, what, expected, ""))
	}
	if isMarkdown {
		at.line += int32(strings.Count(lead, "\n"))
	}
	p.promptReferences(f.Prompt, at, isMarkdown)
	p.checkTaskKeys(&f.taskKeys)
}

// checkTaskKeys checks the keys of a task, or those of `defaults:` below prefix.
func (p *parsed) checkTaskKeys(k *taskKeys, prefix ...string) {
	at := func(path ...string) []string { return append(slices.Clone(prefix), path...) }
	for name, d := range map[string]*duration{"approval_ttl": k.ApprovalTTL, "catch_up_window": k.CatchUpWindow} {
		if d != nil && *d <= 0 {
			p.complain(at(name), "0 is too short", expectedDuration, "")
		}
	}
	if k.Limits != nil && k.Limits.Wall != nil && *k.Limits.Wall <= 0 {
		p.complain(at("limits", "wall"), "0 is too short", expectedDuration, "")
	}
	if k.Timezone != "" {
		if _, err := task.LoadZone(k.Timezone); err != nil {
			p.complain(at("timezone"), "bad time zone "+quoted(k.Timezone)+": "+err.Error(), "", "")
		}
	}
	if k.OutputSchema != nil {
		text, err := json.Marshal(k.OutputSchema)
		if err == nil {
			_, err = compileText(text)
		}
		if err != nil {
			p.complain(at("output_schema"), "output_schema does not compile: "+oneLine(err.Error()), "a JSON Schema", "")
		}
	}
	p.reference(at("ping"), k.Ping, forSecret)
	p.checkURL(at("ping"), k.Ping)
	p.checkList(at("connectors"), k.Connectors)
	p.checkList(at("require"), k.Require)
	p.checkList(at("optional"), k.Optional)
	for _, id := range values(k.Optional) {
		if slices.Contains(values(k.Require), id) {
			p.complain(indexOf(p, at("optional"), id), quoted(id)+" is required and optional", "one of them", "")
		}
	}
	if k.Report != "" && k.Tools != nil && len(*k.Tools) == 0 {
		p.complain(at("report"), "report: required, but tools: [] takes the report tool away too", "at least one connector in tools, or no key report", "")
	}
	p.checkTools(at("tools"), k.Tools)
	p.checkGrants(at("allow"), "allow", k.Allow)
	p.checkGrants(at("deny"), "deny", k.Deny)
	if k.Deliver != nil {
		for i := range *k.Deliver {
			p.checkDelivery(&(*k.Deliver)[i], at("deliver", fmt.Sprint(i)))
		}
	}
}

// checkList checks a list of connectors and removes what stands twice.
func (p *parsed) checkList(path []string, list *[]string) {
	if list == nil {
		return
	}
	seen := make(map[string]int)
	kept := make([]string, 0, len(*list))
	for i, id := range *list {
		at := below(path, fmt.Sprint(i))
		switch {
		case !task.ValidConnectorID(id):
			p.complain(at, "bad connector name "+quoted(id), expectedConnectorID, "")
		case slices.Contains(kept, id):
			p.warn(at, quoted(id)+" stands twice; the second counts for nothing", "", "")
			continue
		}
		seen[id] = i
		kept = append(kept, id)
	}
	*list = kept
	if p.entries == nil {
		p.entries = make(map[string]map[string]int)
	}
	p.entries[pointerOf(path)] = seen
}

func (p *parsed) checkTools(path []string, list *[]string) {
	if list == nil {
		return
	}
	plain := make([]string, 0, len(*list))
	for i, id := range *list {
		conn, tool, isTool := strings.Cut(id, "/")
		if !isTool {
			plain = append(plain, id)
			continue
		}
		p.complain(below(path, fmt.Sprint(i)), "tools lists connectors, not single tools: "+quoted(id), "the name of a connector",
			fmt.Sprintf("write %s, and refuse single tools with deny or disabled_tools; to allow %s without approval write it under allow", printable(conn), printable(tool)))
	}
	if len(plain) == len(*list) {
		p.checkList(path, list)
	}
}

// deliveryNeeds says which key each kind of destination takes.
var deliveryNeeds = map[string]string{"file": "path", "command": "command", "notify": "url"}

func (p *parsed) checkDelivery(d *deliveryKeys, at []string) {
	need := deliveryNeeds[d.To]
	for _, key := range []string{"path", "command", "url"} {
		if key == need || need == "" {
			continue
		}
		if path := below(at, key); p.tree.has(path...) {
			p.complainKey(path, fmt.Sprintf("key %q does not belong to a destination of kind %s", key, d.To), need, "")
		}
	}
	if need != "" && !p.tree.has(below(at, need)...) {
		p.complain(at, fmt.Sprintf("a destination of kind %s without a %s", d.To, need), need, "")
	}
	if d.Timeout != nil && *d.Timeout <= 0 {
		p.complain(below(at, "timeout"), "0 is too short", expectedDuration, "")
	}
	p.reference(below(at, "url"), d.URL, forSecret)
	p.checkPath(below(at, "path"), d.Path)
	if d.Command != nil {
		p.checkCommand(below(at, "command"), *d.Command)
	}
}

// checkPath checks where a delivery writes to.
func (p *parsed) checkPath(at []string, file string) {
	if file == "" {
		return
	}
	p.reference(at, file, forPath)
	if !strings.HasPrefix(file, "/") && !strings.HasPrefix(file, "${") {
		p.complain(at, quoted(file)+" is not absolute", "an absolute path", "")
	}
	if _, err := template.New("").Parse(file); err != nil && !strings.Contains(err.Error(), "not defined") {
		p.complain(at, "path template: "+oneLine(strings.TrimPrefix(err.Error(), "template: ")), "a Go template such as {{.Due.Format \"2006-01-02\"}}", "")
	}
}

func (p *parsed) checkCommand(at []string, argv []string) {
	if len(argv) == 0 || argv[0] == "" {
		p.complain(at, "empty command", "program and arguments", "")
	}
	for i, arg := range argv {
		p.argument(below(at, fmt.Sprint(i)), arg)
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
