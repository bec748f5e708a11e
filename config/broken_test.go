package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"runnerd/task"
)

// A config of one more file over base, and everything that is said about it.
func TestBrokenFiles(t *testing.T) {
	long := "---\nschedule: \"@daily\"\n---\n" + strings.Repeat("x", maxFile)
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for i := range 8 {
		c, n := string(rune('a'+i)), string(rune('b'+i))
		bomb += n + ": &" + n + " [" + strings.TrimSuffix(strings.Repeat("*"+c+",", 9), ",") + "]\n"
	}
	tests := []struct {
		name, file, text string
		want             []string
	}{
		{"unknown key", "tasks/t.md", "---\nshedule: \"@daily\"\n---\np\n", []string{
			"tasks/t.md:2:1: unknown key \"shedule\"; expected one of the keys that `runnerd schema` lists; did you mean schedule?"}},
		{"unknown nested key", "tasks/t.md", "---\nlimits: {stepz: 3}\n---\np\n", []string{
			"tasks/t.md:2:10: limits: unknown key \"stepz\"; expected one of cost, cost_per_day, runs_per_day, steps, tokens, tokens_per_day, tool_calls, wall; did you mean steps?"}},
		{"duplicate key", "tasks/t.yaml", "prompt: p\nmodel: default\nmodel: priced\n", []string{
			"tasks/t.yaml:3:1: duplicate key \"model\"; expected each key once; it is already set at line 2"}},
		{"wrong type", "tasks/t.yaml", "prompt: p\nenabled: yes\nlimits: {steps: 2.5}\n", []string{
			"tasks/t.yaml:2:10: enabled: wrong type: text; expected true or false",
			"tasks/t.yaml:3:17: limits.steps: wrong type: a number; expected a whole number"}},
		{"list as text", "tasks/t.yaml", "prompt: p\nconnectors: memory\n", []string{
			"tasks/t.yaml:2:13: connectors: wrong type: text; expected a list; write [value], also for one"}},
		{"tools as text", "tasks/t.yaml", "prompt: p\ntools: memory\n", []string{
			"tasks/t.yaml:2:8: tools: wrong type: text; expected a list; write [value], also for one"}},
		{"list of numbers", "tasks/t.yaml", "prompt: p\nconnectors: [1]\n", []string{
			"tasks/t.yaml:2:14: connectors[0]: wrong type: a number; expected text; put it in quotes"}},
		{"nothing for a list", "tasks/t.yaml", "prompt: p\nconnectors:\n", []string{
			"tasks/t.yaml:2:12: connectors: no value; expected a list; leave the key out to say nothing, or write [] for none"}},
		{"bad value", "tasks/t.yaml", "prompt: p\non_ask: dney\noverlap: never\n", []string{
			"tasks/t.yaml:2:9: on_ask: unknown value \"dney\"; expected deny or park; did you mean deny?",
			"tasks/t.yaml:3:10: overlap: unknown value \"never\"; expected skip, queue or replace"}},
		{"durations", "tasks/t.yaml", "prompt: p\njitter: 5\napproval_ttl: soon\ncatch_up_window: 0\nlimits: {wall: 0s}\n", []string{
			"tasks/t.yaml:2:9: jitter: 5 has no unit; expected a duration such as \"30s\", \"15m\", \"12h\" or \"7d\"; did you mean 5s?",
			"tasks/t.yaml:3:15: approval_ttl: unreadable value \"soon\"; expected a duration such as \"30s\", \"15m\", \"12h\" or \"7d\"",
			"tasks/t.yaml:4:18: catch_up_window: 0 is too short; expected a duration such as \"30s\", \"15m\", \"12h\" or \"7d\"",
			"tasks/t.yaml:5:16: limits.wall: 0 is too short; expected a duration such as \"30s\", \"15m\", \"12h\" or \"7d\""}},
		{"number too small", "tasks/t.yaml", "prompt: p\nretry: {attempts: 0}\n", []string{
			"tasks/t.yaml:2:19: retry.attempts: 0 is too small; expected at least 1"}},
		{"A5 optional", "tasks/t.yaml", "prompt: p\nrequire: [memory]\noptional: [memory, memry]\n", []string{
			"tasks/t.yaml:3:12: optional[0]: \"memory\" is required and optional; expected one of them",
			"tasks/t.yaml:3:20: optional[1]: unknown connector \"memry\"; expected a connector of connectors.yaml; did you mean memory?"}},
		{"C11 report", "tasks/t.yaml", "prompt: p\nreport: requred\n", []string{
			"tasks/t.yaml:2:9: report: unknown value \"requred\"; expected required; did you mean required?"}},
		{"C11 report without its tool", "tasks/t.yaml", "prompt: p\nreport: required\ntools: []\n", []string{
			"tasks/t.yaml:2:9: report: report: required, but tools: [] takes the report tool away too; expected at least one connector in tools, or no key report"}},
		{"tab", "tasks/t.yaml", "prompt: p\nlimits:\n\tsteps: 3\nmodle: x\n", []string{
			"tasks/t.yaml:3:1: a tab in the indentation; expected spaces; replace each tab with spaces",
			"tasks/t.yaml:4:1: unknown key \"modle\"; expected one of the keys that `runnerd schema` lists; did you mean model?"}},
		{"tab in front matter", "tasks/t.md", "---\nlimits:\n\tsteps: 3\n---\np\n", []string{
			"tasks/t.md:3:1: a tab in the indentation; expected spaces; replace each tab with spaces"}},
		{"not UTF-8", "tasks/t.yaml", "prompt: p\nmodel: caf\xe9\n", []string{
			"tasks/t.yaml:2:11: byte 0xe9 is not UTF-8; expected UTF-8 text; save the file as UTF-8"}},
		{"too large", "tasks/t.md", long, []string{
			"tasks/t.md: file has 1048603 bytes; expected at most 1048576 (1 MiB)"}},
		{"empty", "tasks/t.md", "", []string{"tasks/t.md:1:1: file is empty"}},
		{"blank", "models.yaml", " \n\n", []string{"models.yaml:1:1: file is empty"}},
		{"no front matter", "tasks/t.md", "Just do it.\n", []string{
			"tasks/t.md:1:1: no front matter; expected a first line ---, the task's keys, a line ---, then the prompt"}},
		{"front matter without an end", "tasks/t.md", "---\nschedule: \"@daily\"\nDo it.\n", []string{
			"tasks/t.md:1:1: front matter without an end; expected a line --- between the keys and the prompt"}},
		{"no prompt", "tasks/t.md", "---\nmodel: default\n---\n  \n", []string{
			"tasks/t.md:4:1: the task has no prompt; expected text below the front matter"}},
		{"no prompt in YAML", "tasks/t.yaml", "model: default\n", []string{
			"tasks/t.yaml:1:1: the task has no prompt; expected a key prompt"}},
		{"prompt twice", "tasks/t.md", "---\nprompt: p\n---\nq\n", []string{
			"tasks/t.md:2:1: unknown key \"prompt\"; expected the prompt as the text below the front matter"}},
		{"two tasks of one name", "tasks/good.yaml", "prompt: p\n", []string{
			"tasks/good.yaml:1:1: two files define the task \"good\": tasks/good.md and tasks/good.yaml; expected one of them; remove or rename the other"}},
		{"bad id", "tasks/Bad Name.md", "---\n---\np\n", []string{
			"tasks/Bad Name.md: file name \"Bad Name\" cannot be a task's id; expected 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit; rename the file"}},
		{"zone", "tasks/t.yaml", "prompt: p\ntimezone: Mars/Base\n", []string{
			"tasks/t.yaml:2:11: timezone: bad time zone \"Mars/Base\": unknown zone; expected an IANA name such as Europe/Berlin"}},
		{"F8 zone in lower case", "tasks/t.yaml", "prompt: p\ntimezone: europe/berlin\n", []string{
			"tasks/t.yaml:2:11: timezone: bad time zone \"europe/berlin\": unknown zone; did you mean Europe/Berlin?"}},
		{"F8 a city", "runnerd.yaml", "defaults: {timezone: Berlin}\n", []string{
			"runnerd.yaml:1:22: defaults.timezone: bad time zone \"Berlin\": unknown zone; did you mean Europe/Berlin?"}},
		{"F5 a schedule without quotes", "tasks/t.md", "---\nschedule: */5 * * * *\n---\np\n", []string{
			"tasks/t.md:2:1: not valid YAML: did not find expected alphabetic or numeric character; put the value in quotes"}},
		{"F5 stars without quotes", "tasks/t.md", "---\nschedule: * * * * *\n---\np\n", []string{
			"tasks/t.md:2:1: not valid YAML: did not find expected alphabetic or numeric character; put the value in quotes"}},
		{"F5 a list without quotes", "tasks/t.md", "---\nschedule:\n  - */5 * * * *\n---\np\n", []string{
			"tasks/t.md:3:3: not valid YAML: did not find expected alphabetic or numeric character; put the value in quotes"}},
		{"F5 a name without quotes", "tasks/t.md", "---\nschedule: @daily\n---\np\n", []string{
			"tasks/t.md:2:1: not valid YAML: found character that cannot start any token; put the value in quotes"}},
		{"F5 a glob without quotes", "tasks/t.md", "---\ndeny: [*/send]\n---\np\n", []string{
			"tasks/t.md:2:1: not valid YAML: did not find expected alphabetic or numeric character; put the value in quotes"}},
		{"local zone", "tasks/t.yaml", "prompt: p\ntimezone: Local\n", []string{
			"tasks/t.yaml:2:11: timezone: bad time zone \"Local\": expected an IANA name such as Europe/Berlin; the host's own zone plays no part"}},
		{"schedule", "tasks/t.yaml", "prompt: p\nschedule:\n  - \"@daily\"\n  - TZ=UTC 0 0 * * *\n", []string{
			"tasks/t.yaml:4:5: schedule[1]: schedule has a TZ prefix"}},
		{"a tool in tools", "tasks/t.yaml", "prompt: p\ntools: [mail/search]\n", []string{
			"tasks/t.yaml:2:9: tools[0]: tools lists connectors, not single tools: \"mail/search\"; expected the name of a connector; write mail, and refuse single tools with deny or disabled_tools; to allow search without approval write it under allow"}},
		{"unknown names", "tasks/t.yaml", "prompt: p\nmodel: defualt\nproject: op\nconnectors: [memroy]\ntools: [nothing-like-it]\nrequire: [disk]\ndeny: [mial/send_*]\n", []string{
			"tasks/t.yaml:2:8: model: unknown model \"defualt\"; expected a model of models.yaml; did you mean default?",
			"tasks/t.yaml:3:10: project: unknown project \"op\"; expected a project of projects.yaml; did you mean ops?",
			"tasks/t.yaml:4:14: connectors[0]: unknown connector \"memroy\"; expected a connector of connectors.yaml; did you mean memory?",
			"tasks/t.yaml:5:9: tools[0]: unknown connector \"nothing-like-it\"; expected a connector of connectors.yaml",
			"tasks/t.yaml:6:11: require[0]: \"disk\" is required but not reachable; expected one of the task's connectors",
			"tasks/t.yaml:6:11: require[0]: unknown connector \"disk\"; expected a connector of connectors.yaml",
			"tasks/t.yaml:7:8: deny[0]: unknown connector \"mial\"; expected a connector of connectors.yaml; did you mean mail?"}},
		{"require outside the project's", "tasks/t.yaml", "prompt: p\nproject: ops\nrequire: [mail]\n", []string{
			"tasks/t.yaml:3:11: require[0]: \"mail\" is required but not reachable; expected one of the project's connectors"}},
		{"grants", "tasks/t.yaml", "prompt: p\nallow:\n  - files\n  - tool: files/write_file\n    where: {path: {undr: /x}}\n  - {tool: \"files/[a\"}\n  - {where: {a: {eq: 1}}}\n  - tool: mail/send\n    where: {to: {under: /x}, n: {in: []}, u: {host: \"a/b\"}}\n  - {tool: files/x, where: {}}\n", []string{
			"tasks/t.yaml:3:5: allow[0]: \"files\" names no tool; expected connector/tool; for every tool of a connector write files/*",
			"tasks/t.yaml:5:20: allow[1].where.path: unknown key \"undr\"; expected one of eq, host, in, max, max_items, max_length, min, under; did you mean under?",
			"tasks/t.yaml:6:12: allow[2].tool: pattern \"[a\" is not understood: it has \"[\"; expected letters, digits and _-./:@#, with * for any text and ? for one character",
			"tasks/t.yaml:7:5: allow[3]: missing key \"tool\"",
			"tasks/t.yaml:9:25: allow[4].where.to.under: connector mail runs elsewhere, so its paths cannot be checked; expected under only with a connector that runs here",
			"tasks/t.yaml:9:38: allow[4].where.n.in: empty list: nothing would ever match; expected at least one value",
			"tasks/t.yaml:9:53: allow[4].where.u.host: bad host \"a/b\"; expected a host name, or \"*.example.com\", with a port or without",
			"tasks/t.yaml:10:28: allow[5].where: nothing is said here; expected at least one key"}},
		{"W8 conditions that exclude each other", "tasks/t.yaml", "prompt: p\nallow:\n  - tool: files/x\n    where: {a: {min: 5, max: 3}, b: {eq: 5, max: 3}, c: {in: [1, 2], min: 3}, d: {max: 5, max_length: 3}, e: {in: [1, 9], max: 3, min: 0}, f: {eq: x, in: [y]}, g: {eq: 0.3, max: 0.30, min: 3e-1}}\ndeny:\n  - {tool: files/y, where: {a: {eq: x, host: a.org}}}\n", []string{
			"tasks/t.yaml:4:22: allow[0].where.a.min: at least 5 and at most 3: nothing would ever match; expected conditions that one value can meet",
			"tasks/t.yaml:4:42: allow[0].where.b.eq: no value here is at most 3: nothing would ever match; expected conditions that one value can meet",
			"tasks/t.yaml:4:62: allow[0].where.c.in: no value here is at least 3: nothing would ever match; expected conditions that one value can meet",
			"tasks/t.yaml:4:103: allow[0].where.d.max_length: max is for number and max_length for string: nothing would ever match; expected conditions that one value can meet",
			"tasks/t.yaml:4:148: allow[0].where.f.eq: no value here is in [\"y\"]: nothing would ever match; expected conditions that one value can meet",
			"tasks/t.yaml:6:37: deny[0].where.a.eq: no value here has host a.org: nothing would ever match; expected conditions that one value can meet"}},
		{"B3 patterns, B7 hosts, W8 nothing to match, W6 times", "tasks/t.yaml", "prompt: p\ndeny:\n  - \"files/[w]rite_*\"\n  - files/{a,b}\n  - 'files/a\\_b'\n  - {tool: files/x, times: 2}\nallow:\n  - tool: files/write_file\n    where: {path: {eq: null}, content: anything, u: {host: \"example.com:8443\"}, v: {host: \"127.1\"}, w: {max: \"7\"}, x: null}\n    times: 0\n", []string{
			"tasks/t.yaml:3:5: deny[0]: pattern \"[w]rite_*\" is not understood: it has \"[\"; expected letters, digits and _-./:@#, with * for any text and ? for one character",
			"tasks/t.yaml:4:5: deny[1]: pattern \"{a,b}\" is not understood: it has \"{\"; expected letters, digits and _-./:@#, with * for any text and ? for one character",
			"tasks/t.yaml:5:5: deny[2]: pattern \"a\\\\_b\" is not understood: it has \"\\\\\"; expected letters, digits and _-./:@#, with * for any text and ? for one character",
			"tasks/t.yaml:6:28: deny[3].times: times on a line of deny; expected times on lines of allow only",
			"tasks/t.yaml:9:24: allow[0].where.path.eq: no value: nothing would ever match; expected a value; an argument that must not be there is written: absent",
			"tasks/t.yaml:9:40: allow[0].where.content: unreadable value \"anything\"; expected any, absent, or a mapping such as {eq: …}",
			"tasks/t.yaml:9:91: allow[0].where.v.host: bad host \"127.1\"; expected a host name, or \"*.example.com\", with a port or without",
			"tasks/t.yaml:9:110: allow[0].where.w.max: wrong type: text; expected a number",
			"tasks/t.yaml:9:119: allow[0].where.x: no value; expected text or a mapping of keys; leave the key out to say nothing",
			"tasks/t.yaml:10:12: allow[0].times: 0 is too small; expected at least 1"}},
		{"deliveries", "tasks/t.yaml", "prompt: p\ndeliver:\n  - {to: file, url: x}\n  - {to: mail}\n  - {to: file, path: out.md}\n  - {to: file, path: \"/x/{{.Due\"}\n  - {to: command, command: []}\n", []string{
			"tasks/t.yaml:3:5: deliver[0]: a destination of kind file without a path; expected path",
			"tasks/t.yaml:3:16: deliver[0]: key \"url\" does not belong to a destination of kind file; expected path",
			"tasks/t.yaml:4:10: deliver[1].to: unknown value \"mail\"; expected file, command or notify",
			"tasks/t.yaml:5:22: deliver[2].path: \"out.md\" is not absolute; expected an absolute path",
			"tasks/t.yaml:6:22: deliver[3].path: path template: :1: unclosed action; expected a Go template such as {{.Due.Format \"2006-01-02\"}}",
			"tasks/t.yaml:7:28: deliver[4].command: empty command; expected program and arguments"}},
		{"money without a price", "tasks/t.yaml", "prompt: p\nlimits: {cost: 0.5}\n", []string{
			"tasks/t.yaml:2:16: limits.cost: a money limit, but model \"default\" has no price; expected its price in models.yaml; {input: 0, output: 0} if it is free"}},
		{"output schema", "tasks/t.yaml", "prompt: p\noutput_schema: {type: 7}\n", []string{"tasks/t.yaml:2:16: output_schema: output_schema does not compile:*"}},
		{"references", "tasks/t.yaml", "prompt: p\ndeliver:\n  - {to: notify, url: \"${ntfy}\"}\n  - {to: file, path: \"/x/${file:a}\"}\n  - {to: command, command: [sh, \"${env:A\"]}\n", []string{
			"tasks/t.yaml:3:23: deliver[0].url: unknown reference \"${ntfy}\"; expected ${env:NAME} or ${credential:NAME}; write $${ for a literal ${",
			"tasks/t.yaml:4:22: deliver[1].path: \"${file:a}\" stands outside a prompt; expected ${env:NAME} or ${credential:NAME}",
			"tasks/t.yaml:5:33: deliver[2].command[1]: \"${env:A\" is not closed; expected ${env:NAME} or ${credential:NAME}; write $${ for a literal ${"}},
		{"credential in a prompt", "tasks/t.md", "---\n---\n\nUse\n  é ${credential:x} and ${HOME}\n", []string{
			"tasks/t.md:5:5: a credential in a prompt would be stored and sent to a model; expected ${env:NAME} or ${file:NAME}; give it to a connector instead"}},
		{"file outside", "tasks/t.md", "---\n---\n${file:../etc/passwd}\n", []string{
			"tasks/t.md:3:1: bad file name \"../etc/passwd\" in \"${file:../etc/passwd}\": want a path inside the config directory; expected ${env:NAME} or ${file:NAME}; write $${ for a literal ${"}},

		{"syntax and more", "tasks/t.yaml", "prompt: p\nmodle: x\nlimits: [1, 2\nsession: kept\n", []string{
			"tasks/t.yaml:2:1: unknown key \"modle\"; expected one of the keys that `runnerd schema` lists; did you mean model?",
			"tasks/t.yaml:3:1: not valid YAML: did not find expected ',' or ']'; close the quote or bracket that opens here",
			"tasks/t.yaml:4:10: session: unknown value \"kept\"; expected keep, fresh or last-output; did you mean keep?"}},
		{"syntax in the prompt", "tasks/t.yaml", "session: kept\nprompt: \"unclosed\n", []string{
			"tasks/t.yaml:1:10: session: unknown value \"kept\"; expected keep, fresh or last-output; did you mean keep?",
			"tasks/t.yaml:2:1: not valid YAML: found unexpected end of stream; close the quote or bracket that opens here"}},
		{"colon in a value", "tasks/t.md", "---\nmodel: default\naccept_risk: yes: really\n---\np\n", []string{
			"tasks/t.md:3:1: not valid YAML: mapping values are not allowed in this context; expected one `key: value` on a line; put a value that holds \": \" in quotes, or check the indentation"}},
		{"indentation", "tasks/t.yaml", "prompt: p\ndeny:\n  - mail/x\n - mail/y\n", []string{
			"tasks/t.yaml:4:2: not valid YAML: did not find expected key; expected `key: value` in line with its neighbours; check the indentation"}},
		{"merge key", "tasks/t.yaml", "prompt: p\nlimits: {<<: {steps: 1}}\n", []string{
			"tasks/t.yaml:2:10: merge keys (<<) are not read; expected each key written out; an alias (*name) may stand for a whole value"}},
		{"octal", "tasks/t.yaml", "prompt: p\nlimits: {steps: 012, tokens: 0x1F, tool_calls: 1_0}\n", []string{
			"tasks/t.yaml:2:17: number 012 is not in plain decimal form; expected a decimal number; put it in quotes if it is text",
			"tasks/t.yaml:2:30: number 0x1F is not in plain decimal form; expected a decimal number; put it in quotes if it is text",
			"tasks/t.yaml:2:48: number 1_0 is not in plain decimal form; expected a decimal number; put it in quotes if it is text"}},
		{"infinity", "tasks/t.yaml", "prompt: p\nmodel: priced\nlimits: {cost: .inf}\n", []string{
			"tasks/t.yaml:3:16: number .inf is not in plain decimal form; expected a decimal number; put it in quotes if it is text"}},
		{"tag", "tasks/t.yaml", "prompt: !secret p\n", []string{"tasks/t.yaml:1:9: tag \"!secret\" is not read; expected a plain value"}},
		{"two documents", "tasks/t.yaml", "prompt: p\n---\nprompt: q\n", []string{
			"tasks/t.yaml:2:1: not valid YAML: a second YAML document begins; expected one document in a file"}},
		{"alias bomb", "tasks/t.yaml", bomb, []string{"tasks/t.yaml:1:22: too much nesting or too many values; expected at most 20000 values, 40 deep, each use of an alias counted"}},
		{"alias to itself", "tasks/t.yaml", "a: &x [*x]\n", []string{"tasks/t.yaml:1:4: too much nesting or too many values; expected at most 20000 values, 40 deep, each use of an alias counted"}},
		{"a list at the top", "tasks/t.yaml", "- a\n", []string{
			"tasks/t.yaml:1:1: the task has no prompt; expected a key prompt",
			"tasks/t.yaml:1:1: wrong type: a list; expected a mapping of keys"}},

		{"models", "models.yaml", "models:\n  default: {provider: openia, model: m}\n  a: {provider: openai, fallback: [b, c]}\n  b: {provider: command, command: [x], fallback: [a], timeout: 0s}\n  d: {provider: ollama, model: m, script: x, max_output_tokens: 99999, base_url: here}\n  Bad Name: {model: m}\n", []string{
			"models.yaml:2:23: models.default.provider: unknown value \"openia\"; expected openai, anthropic, ollama, command or scripted; did you mean openai?",
			"models.yaml:3:6: models.a: provider openai without a key model; expected model",
			"models.yaml:3:36: models.a.fallback[0]: a falls back to b, which leads back to a; expected no cycle",
			"models.yaml:3:39: models.a.fallback[1]: unknown model \"c\"; expected a model of this file",
			"models.yaml:4:51: models.b.fallback[0]: b falls back to a, which leads back to b; expected no cycle",
			"models.yaml:4:64: models.b.timeout: 0 is too short; expected a duration such as \"30s\", \"15m\", \"12h\" or \"7d\"",
			"models.yaml:5:35: models.d: key \"script\" does not belong to provider ollama",
			"models.yaml:5:65: models.d.max_output_tokens: the answer's cap leaves no room in the context window; expected less than context_tokens, 32768",
			"models.yaml:5:82: models.d.base_url: bad URL \"here\"; expected http://… or https://…",
			"models.yaml:6:13: models.Bad Name: bad model name \"Bad Name\"; expected 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit",
			"models.yaml:6:13: models.Bad Name: missing key \"provider\""}},
		{"connectors", "connectors.d/x.yaml", "mcpServers:\n  files: {builtin: memory}\n  A_b: {command: x}\n  two: {command: x, url: \"http://x\"}\n  none: {env: {A: b}}\n  root: {builtin: files}\n  odd: {url: \"ftp://x\", args: [y], type: stdio}\n  cls: {command: x, classes: {a: reed, \"[\": read}, flags: [secret], tool_flags: {p: [privat]}, env: {N: 5}}\n", []string{
			"connectors.d/x.yaml:2:3: mcpServers.files: connector \"files\" is already defined in connectors.yaml; expected a name of its own",
			"connectors.d/x.yaml:3:3: mcpServers: bad connector name \"A_b\"; expected 1 to 31 of a-z, 0-9 and '-', beginning with a letter; rename the entry",
			"connectors.d/x.yaml:4:21: mcpServers.two: command and url at once; expected one of builtin, command and url",
			"connectors.d/x.yaml:5:9: mcpServers.none: nothing says how to reach it; expected one of builtin, command and url",
			"connectors.d/x.yaml:6:9: mcpServers.root: builtin files without a root; expected root: the directory it may serve",
			"connectors.d/x.yaml:7:14: mcpServers.odd.url: bad URL \"ftp://x\"; expected http://… or https://…",
			"connectors.d/x.yaml:7:25: mcpServers.odd: key \"args\" does not belong to a connector with url; expected headers or allow_private",
			"connectors.d/x.yaml:7:42: mcpServers.odd.type: type stdio with a url; expected stdio with a command, http with a url; leave type out",
			"connectors.d/x.yaml:8:34: mcpServers.cls.classes.a: unknown value \"reed\"; expected read, write or exec; did you mean read?",
			"connectors.d/x.yaml:8:45: mcpServers.cls.classes.[: pattern \"[\" is not understood: it has \"[\"; expected letters, digits and _-./:@#, with * for any text and ? for one character",
			"connectors.d/x.yaml:8:60: mcpServers.cls.flags[0]: unknown value \"secret\"; expected untrusted, private or egress",
			"connectors.d/x.yaml:8:86: mcpServers.cls.tool_flags.p[0]: unknown value \"privat\"; expected untrusted, private or egress; did you mean private?",
			"connectors.d/x.yaml:8:105: mcpServers.cls.env.N: wrong type: a number; expected text; put it in quotes"}},
		{"broken JSON", ".mcp.json", "{\"mcpServers\": {\"a\": {\"command\": x}}}\n", []string{
			".mcp.json:1:34: not valid JSON: invalid character 'x' *"}},
		{"cut JSON", ".mcp.json", "{\"mcpServers\": {\"a\":\n", []string{".mcp.json:2:1: not valid JSON: the text ends too early"}},
		{"projects", "projects.yaml", "projects:\n  ops: {connectors: [fles], limits: {wall: 0}}\n  \"no good\": {instructions: \"${credential:a}\"}\n", []string{
			"projects.yaml:2:22: projects.ops.connectors[0]: unknown connector \"fles\"; expected a connector of connectors.yaml; did you mean files?",
			"projects.yaml:2:44: projects.ops.limits.wall: 0 is too short; expected a duration such as \"30s\", \"15m\", \"12h\" or \"7d\"",
			"projects.yaml:3:14: projects.no good: bad project name \"no good\"; expected 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit",
			"projects.yaml:3:29: a credential in a prompt would be stored and sent to a model; expected ${env:NAME} or ${file:NAME}; give it to a connector instead"}},
		{"the daemon", "runnerd.yaml", "notify:\n  - {to: notify}\n  - {to: command, command: [x], events: [failures]}\ndefaults: {model: nope, prompt: p, schedule: \"TZ=x * * * * *\"}\nlimits: {steps: 3}\nretention: {age: 0s, runs: 0, results: lots}\n", []string{
			"runnerd.yaml:2:5: notify[0]: a destination of kind notify without a url; expected url",
			"runnerd.yaml:3:42: notify[1].events[0]: unknown value \"failures\"; expected failure, approval, budget, breaker or config; did you mean failure?",
			"runnerd.yaml:4:19: defaults.model: unknown model \"nope\"; expected a model of models.yaml",
			"runnerd.yaml:4:25: defaults: unknown key \"prompt\"; expected one of the keys that `runnerd schema` lists",
			"runnerd.yaml:4:46: defaults.schedule: schedule has a TZ prefix",
			"runnerd.yaml:5:10: limits: unknown key \"steps\"; expected one of cost_per_day, runs_per_day, tokens_per_day",
			"runnerd.yaml:6:18: retention.age: 0 is too short; expected a duration such as \"30s\", \"15m\", \"12h\" or \"7d\"",
			"runnerd.yaml:6:28: retention.runs: 0 is too small; expected at least 1",
			"runnerd.yaml:6:40: retention.results: unreadable value \"lots\"; expected a size such as \"500MB\" or \"2GiB\""}},
	}
	check := func(s task.Schedule) error {
		if strings.HasPrefix(s.Specs[0], "TZ=") {
			return errors.New("schedule has a TZ prefix")
		}
		return nil
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDir(t, base(nil))
			d.write(tt.file, tt.text)
			got := texts(load(t, d.loader(func(o *Options) { o.CheckSchedule = check })).Problems)
			if !slices.EqualFunc(got, tt.want, sameText) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// sameText lets a trailing * stand for words of a library's.
func sameText(got, want string) bool {
	if head, ok := strings.CutSuffix(want, "*"); ok {
		return strings.HasPrefix(got, head)
	}
	return got == want
}

func TestManyProblemsAreBounded(t *testing.T) {
	text := "prompt: p\n"
	for i := range 500 {
		text += fmt.Sprintf("bad%d: 1\n", i)
	}
	p := parse("tasks/t.yaml", kindTask, []byte(text))
	if n := len(p.problems); n != maxProblems+1 || !strings.Contains(p.problems[n-1].Error(), "400 more problems") {
		t.Errorf("%d problems, last %q", n, p.problems[n-1].Error())
	}
}

// Broken files do not keep the others from running.
func TestOthersKeepRunning(t *testing.T) {
	d := newDir(t, base(map[string]string{"tasks/bad.md": "---\nshedule: x\n---\np\n", "tasks/empty.md": ""}))
	d.write("tasks/empty.md", "")
	s := load(t, d.loader())
	if got := s.TaskIDs(); !slices.Equal(got, []string{"good"}) {
		t.Errorf("tasks = %v", got)
	}
	if len(s.Problems) != 2 {
		t.Errorf("problems = %q", texts(s.Problems))
	}
}

func TestReadableForms(t *testing.T) {
	tests := map[string]struct{ file, text string }{
		"byte order mark": {"tasks/t.md", "\xef\xbb\xbf---\nmodel: default\n---\np\n"},
		"CRLF":            {"tasks/t.md", "---\r\nmodel: default\r\nlimits:\r\n  steps: 3\r\n---\r\np\r\n"},
		"alias":           {"tasks/t.yaml", "prompt: p\nconnectors: &c [memory]\ntools: *c\n"},
		"dots as end":     {"tasks/t.md", "---\nmodel: default\n...\np\n"},
		"no keys":         {"tasks/t.md", "---\n---\np\n"},
		"only comments":   {"runnerd.yaml", "# nothing yet\n"},
		"date as text":    {"tasks/t.yaml", "prompt: p\naccept_risk: 2026-01-01\n"},
		"zero":            {"tasks/t.yaml", "prompt: p\njitter: 0\n"},
		"JSON escapes":    {".mcp.json", "{\"mcpServers\": {\"a\": {\"command\": \"\\u0078\\/\\ud83d\\ude00\"}}}"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDir(t, base(nil))
			d.write(tt.file, tt.text)
			s := load(t, d.loader())
			if len(s.Problems) > 0 {
				t.Error(texts(s.Problems))
			}
			if tt.file == "tasks/t.md" && s.Tasks["t"].Task.Prompt != "p" {
				t.Errorf("prompt = %q", s.Tasks["t"].Task.Prompt)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for name, text := range Starter("/srv/reports") {
		f.Add(name, []byte(text))
	}
	f.Add(".mcp.json", []byte(`{"mcpServers": {"a": {"command": "x", "args": ["${A:-b}"]}}}`))
	f.Add("tasks/t.yaml", []byte("prompt: ${file:a}\nallow: [{tool: a/b, where: {p: {under: /x}}}]\n"))
	f.Add("tasks/t.yaml", []byte("a: &x [*x]\n? [b]\n: c\n<<: *x\n\td: 012\n"))
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		for _, rel := range []string{"tasks/t.md", "tasks/t.yaml", "models.yaml", "connectors.yaml", "connectors.d/x.json", "projects.yaml", "runnerd.yaml"} {
			p := parse(rel, kindOf(rel), content)
			for _, pr := range p.problems {
				if pr.File != rel || pr.What == "" || pr.Line < 0 || strings.ContainsAny(pr.Error(), "\n\x00") {
					t.Fatalf("odd problem %+v", pr)
				}
			}
			if p.good() && !p.readable() {
				t.Fatalf("%s: no problem and nothing read", rel)
			}
		}
		_, _ = splitReferences(string(content), true)
		_, _ = splitReferences(string(content), false)
		_ = packageOf(name, strings.Fields(string(content)))
	})
}
