package llm

import "testing"

func TestWrittenCall(t *testing.T) {
	fence := "```"
	offered := []string{"mcp__files__write_file", "mcp_a__read", "report"}
	for _, tt := range []struct {
		name, text string
		want       bool
	}{
		{"C2 hermes", `<tool_call>{"name":"mcp__files__write_file","arguments":{}}</tool_call>`, true},
		{"C2 on lines", "<tool_call>\n{\"name\": \"x\", \"arguments\": {}}\n</tool_call>", true},
		{"C2 cut", "<tool_call>\n{\"name\": \"mcp_a__re", true},
		{"C2 function=", "<function=mcp__files__write_file>{\"path\":\"a\"}</function>", true},
		{"C2 function= with parameters", "<function=mcp__files__write_file>\n<parameter=path>\na\n</parameter>\n</function>", true},
		{"C2 function= cut", "<function=mcp__files__wr", true},
		{"C2 DSML", "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"mcp__files__write_file\">\n</｜DSML｜invoke>", true},
		{"C2 deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>report\n" + fence + "json\n{}\n" + fence + "<｜tool▁call▁end｜>", true},
		{"C2 mistral", `[TOOL_CALLS][{"name":"report","arguments":{}}]`, true},
		{"C2 mistral, newer", `[TOOL_CALLS]report[ARGS]{"outcome":"ok"}`, true},
		{"C2 llama", `<|python_tag|>report.call(outcome="ok")`, true},
		{"C2 glm", "<tool_call>report\n<arg_key>outcome</arg_key>\n<arg_value>ok</arg_value>\n</tool_call>", true},
		{"C2 kimi", `<|tool_calls_section_begin|><|tool_call_begin|>functions.report:0<|tool_call_argument_begin|>{}<|tool_call_end|>`, true},
		{"C2 anthropic", "<function_calls>\n<invoke name=\"report\">\n</invoke>\n</function_calls>", true},
		{"C2 harmony", `<|channel|>commentary to=functions.report <|constrain|>json<|message|>{}`, true},
		{"C2 lead-in before it", "I will write it now. <tool_call>{\"name\":\"x\"}</tool_call>", true},
		{"C2 words after it", "<tool_call>\n{\"name\":\"x\"}\n</tool_call>\nI have written the file.", true},
		{"C2 only the closing tag", "{\"name\": \"x\", \"arguments\": {}}\n</tool_call>", true},
		{"C2 only the opening tag", "Let me see.\n<tool_call>", true},
		{"C2 cut in the tag", "Let me see.\n<tool_ca", true},
		{"C2 cut in the other tag", "[TOOL_CA", true},
		{"C2 bare JSON", `{"name": "mcp__files__write_file", "arguments": {"path": "a"}}`, true},
		{"C2 bare JSON, other keys", `{"tool":"report","parameters":{"outcome":"ok"}}`, true},
		{"C2 bare JSON, nested", `{"type":"function","function":{"name":"report","arguments":"{}"}}`, true},
		{"C2 bare JSON, list", `[{"name":"report","arguments":{}},{"name":"mcp_a__read","arguments":{}}]`, true},
		{"C2 bare JSON, lines", "{\"name\":\"report\",\"arguments\":{}}\n{\"name\":\"mcp_a__read\",\"arguments\":{}}", true},
		{"C2 bare JSON, cut", `{"name": "mcp__files__write_file", "arguments": {"path": "/sr`, true},
		{"C2 bare JSON, cut in the name", `{"name": "mcp__fil`, true},
		{"C2 bare JSON, single quotes", `{'name': 'report', 'arguments': {}}`, true},
		{"C2 fenced JSON alone", fence + "json\n{\"name\":\"report\",\"arguments\":{}}\n" + fence, true},
		{"C2 fenced call alone", fence + "xml\n<tool_call>{\"name\":\"x\"}</tool_call>\n" + fence, true},
		{"C2 fenced form", fence + "tool_call\n{\"tool\": \"report\", \"arguments\": {}}\n" + fence, true},
		{"C2 fenced form after words", "I will.\n" + fence + "tool_call\n{\"tool\": \"report\", \"arguments\": {}}\n" + fence, true},
		{"C2 tool_code", fence + "tool_code\nprint(default_api.report(outcome=\"ok\"))\n" + fence, true},
		{"C2 python", `mcp__files__write_file(path="a", content="b")`, true},
		{"C2 python, list", `[report(outcome="ok")]`, true},

		{"C2 the vendor's list", `{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"report","arguments":"{}"}}]}`, true},
		{"C2 the vendor's older call", `{"function_call":{"name":"report","arguments":"{}"}}`, true},
		{"C2 the name as the key", `{"mcp__files__write_file": {"path": "a"}}`, true},
		{"C2 functools", `functools[{"name": "report", "arguments": {}}]`, true},
		{"C2 in a tag of any name", `<tools>{"name": "report", "arguments": {}}</tools>`, true},
		{"C2 action", "Thought: I should write.\nAction: mcp__files__write_file\nAction Input: {\"path\": \"a\"}", true},
		{"C2 action, marked up, and what follows invented", "**Action:** `report`\n**Action Input:** {}\nObservation: ok\nFinal Answer: done", true},
		{"C2 JSON after words", "I will write it now.\n\n{\"name\": \"mcp__files__write_file\", \"arguments\": {\"path\": \"a\"}}", true},
		{"C2 JSON before words", "{\"name\": \"mcp__files__write_file\", \"arguments\": {\"path\": \"a\"}}\n\nI have written the file.", true},

		{"plain", "All is well.", false},
		{"an action in words", "Action: report the disk to the team.\nAction Input: none", false},
		{"another action", "Action: restart\nAction Input: web", false},
		{"a report as the key", `{"report": {"disks": 3}}`, false},
		{"JSON of its own after words", "The result:\n{\"name\": \"disk\", \"arguments\": {}}", false},
		{"a tag around an answer", "<summary>All is well.</summary>", false},
		{"empty", " \n", false},
		{"quoted in a block", "The log shows this:\n\n" + fence + "\n<tool_call>\n{\"name\": \"mcp__files__write_file\", \"arguments\": {}}\n</tool_call>\n" + fence + "\n\nThe model wrote its call as text.", false},
		{"quoted in a block at the end", "The form is:\n" + fence + "json\n{\"name\": \"mcp__files__write_file\", \"arguments\": {}}\n" + fence, false},
		{"quoted in a span", "The log has `<tool_call>{\"name\":\"x\"}</tool_call>` twice.", false},
		{"the tag in a sentence", "Two answers began with <tool_call> and were dropped.", false},
		{"the tag begins a sentence", "<tool_call> is the tag that the template wants.", false},
		{"a tool in a sentence", "I called mcp__files__write_file (once) and it worked.", false},
		{"a report in words", "report (daily): all is well.", false},
		{"JSON of its own", `{"name": "report", "size": 12}`, false},
		{"JSON of another tool", `{"name": "some_tool", "arguments": {}}`, false},
		{"a list of its own", `[{"name":"disk","parameters":{"used":"80%"}}]`, false},
		{"HTML", "<function>f</function> is how the schema names it.", false},
		{"less than", "if a <tool then b", false},
		{"a block of code", "Run:\n" + fence + "sh\nls\n" + fence, false},
		{"brackets", "[report] all is well", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := WrittenCall(tt.text, offered); got != tt.want {
				t.Errorf("%q: got %v", tt.text, got)
			}
		})
	}
}

func FuzzWrittenCall(f *testing.F) {
	f.Add("<tool_call>{}")
	f.Fuzz(func(t *testing.T, text string) { WrittenCall(text, []string{"report", text}) })
}
