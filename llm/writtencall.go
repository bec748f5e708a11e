package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
)

// WrittenCall tells whether a text is, or ends in, a call that a model wrote as
// text instead of making it. offered are the names of the tools that it had. The
// rule:
//   - a marker with which models frame calls (<tool_call>, <function=…>, <invoke …>,
//     [TOOL_CALLS], <|python_tag|>, DSML and the like), opening or closing, that has
//     the body of a call beside it, stands in its line alone, is a token of the model's
//     own that begins a line, or is where the text ends;
//   - a code block that is called tool_call or the like, ends the text and names an
//     offered tool;
//   - a text that is nothing but a call to an offered tool: JSON of a name and
//     arguments, or name(…), whole or cut off, with or without a code block or a tag
//     around it;
//   - such JSON that begins a line, whatever stands before and after it;
//   - a line `Action: NAME` of an offered tool with `Action Input:` below it.
//
// Code, in blocks and between backticks, is quotation and counts only by the second
// and third line: a text that explains such forms in code is an answer.
func WrittenCall(text string, offered []string) bool {
	text = strings.TrimSpace(text)
	if text == "" {
		return false
	}
	if body, ok := onlyBlock(text); ok {
		return framed(body) || bareCall(body, offered)
	}
	plain := maskCode(text)
	return framed(plain) || bareCall(untagged(text), offered) || endsInBlock(text, offered) || lineCall(plain, offered) || action(text, offered)
}

// untagged is what one tag around a whole text holds, else the text.
func untagged(text string) string {
	if m := tagged.FindStringSubmatch(text); m != nil && m[1] == m[3] {
		return m[2]
	}
	return text
}

// lineCall tells whether JSON that begins a line is a call to an offered tool. It
// looks at the first lines that could be one.
func lineCall(text string, offered []string) bool {
	for _, at := range jsonLines.FindAllStringIndex(text, 64) {
		var raw json.RawMessage
		if json.NewDecoder(strings.NewReader(text[at[1]-1:])).Decode(&raw) != nil {
			continue
		}
		if values, _ := jsonValues(string(raw)); len(values) > 0 && jsonCall(values[0], offered) {
			return true
		}
	}
	return false
}

// action tells whether a text takes an action in the words of agents that have no
// tool interface.
func action(text string, offered []string) bool {
	m := actionLines.FindStringSubmatch(text)
	return m != nil && slices.Contains(offered, m[1])
}

var (
	// callMark is a marker, or as much of one as a name in it needs.
	callMark = regexp.MustCompile(`(?i)</?(?:[a-z]+:)?(?:tool_?calls?|function_?calls?|tool_use|tool_code|invoke|function)(?:[=\s][^<>{\n]{0,120})?>` +
		`|<(?:[a-z]+:)?(?:function=|invoke\s+name=)[^<>{\n]{0,120}` +
		`|<start_function_call>|<[|｜]/?(?:dsml|tool[▁_ ]?calls?|tool[▁_ ]?sep|python_tag|function)[^<>\n]{0,60}(?:[|｜]>)?` +
		`|</[|｜]dsml[^<>\n]{0,60}>|\[/?tool_calls?\]|✿function✿:?|<\|channel\|>commentary to=\S+|\bto=functions\.\w+|\bfunctools\[`)
	// plainTag is a marker that a person may write too.
	plainTag  = regexp.MustCompile(`^</?\w`)
	jsonLines = regexp.MustCompile(`(?m)^[{[]`)
	tagged    = regexp.MustCompile(`(?s)^<(\w+)>(.*)</(\w+)>$`)
	// actionLines are two lines, plain or marked up.
	actionLines = regexp.MustCompile("(?mi)^[ *`#-]*action[ *`]*:[ *`]*([\\w./-]+)[ *`]*\n+[ *`#-]*action input[ *`]*:")
	// cutMark is the beginning of a marker in the last line of a text.
	cutMark = regexp.MustCompile(`(?i)^(?:<(?:tool_?(?:c(?:a(?:l(?:l(?:s)?)?)?)?)?|func(?:t(?:i(?:o(?:n(?:_\w*)?)?)?)?)?|invoke)|\[tool_?[a-z_]{0,5}|<[|｜](?:tool|dsml|python)[^<>\s]{0,30})$`)
	// callBody is how the body of a call begins.
	callBody = regexp.MustCompile(`^(?:[{<]|\[\s*\{|[\w.-]+\s*(?:\{|\[ARGS\]|<arg_key>|\())`)
)

// framed tells whether a text without its quotations holds a framed call.
func framed(text string) bool {
	for _, m := range callMark.FindAllStringIndex(text, -1) {
		before, after := text[:m[0]], text[m[1]:]
		line, _, _ := strings.Cut(after, "\n")
		switch {
		case strings.TrimSpace(after) == "":
			return true
		case startsLine(text, m[0]) && !strings.HasPrefix(text[m[0]:], "to=") && !plainTag.MatchString(text[m[0]:]):
			return true // a model's own token, which nobody else writes
		case startsLine(text, m[0]) && strings.TrimSpace(line) == "":
			return true
		case callBody.MatchString(strings.TrimSpace(after)):
			return true
		case strings.HasPrefix(text[m[0]:], "</") && strings.HasSuffix(strings.TrimSpace(before), "}"):
			return true
		}
	}
	return cutMark.MatchString(strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]))
}

// onlyBlock returns the body of a code block that is the whole text, closed or cut.
func onlyBlock(text string) (body string, ok bool) {
	rest, ok := strings.CutPrefix(text, "```")
	if !ok {
		return "", false
	}
	_, body, _ = strings.Cut(rest, "\n")
	body = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(body), "```"))
	return body, !strings.Contains(body, "```")
}

var callBlock = regexp.MustCompile("(?s)```(?:tool_calls?|tool_code|tool_use|function_calls?)[ \t]*\n([^`]*)(?:```)?$")

// endsInBlock tells whether the text ends in a block that is called a call and names
// an offered tool.
func endsInBlock(text string, offered []string) bool {
	m := callBlock.FindStringSubmatch(text)
	return m != nil && slices.ContainsFunc(offered, func(name string) bool { return names(m[1], name) })
}

// names tells whether a text holds a name that is not a part of a longer one.
func names(text, name string) bool {
	return regexp.MustCompile(`(?:^|[^\w-])` + regexp.QuoteMeta(name) + `(?:$|[^\w-])`).MatchString(text)
}

var (
	spokenCall = regexp.MustCompile(`^\[?(?:print\()?(?:functions\.|default_api\.)?([\w-]+)\s*([({].*)$`)
	cutName    = regexp.MustCompile(`^[\[{\s]*['"](?:type['"]\s*:\s*['"]function['"]\s*,\s*['"])?(?:name|tool|tool_name|function|recipient_name)['"]\s*:\s*(?:\{\s*['"]name['"]\s*:\s*)?['"]([\w.-]*)`)
)

// bareCall tells whether a text is nothing but a call to an offered tool.
func bareCall(text string, offered []string) bool {
	text = strings.TrimSpace(text)
	if m := spokenCall.FindStringSubmatch(strings.ReplaceAll(text, "\n", " ")); m != nil && slices.Contains(offered, m[1]) {
		return strings.ContainsAny(text[len(text)-1:], ")}]") || !strings.ContainsAny(m[2], ")}")
	}
	if text == "" || text[0] != '{' && text[0] != '[' {
		return false
	}
	values, whole := jsonValues(text)
	if whole {
		return len(values) > 0 && !slices.ContainsFunc(values, func(raw json.RawMessage) bool { return !jsonCall(raw, offered) })
	}
	m := cutName.FindStringSubmatch(text)
	if m == nil {
		return false
	}
	name := strings.TrimPrefix(m[1], "functions.")
	ended := len(m[0]) < len(text) // else the text is cut in the name
	return slices.ContainsFunc(offered, func(o string) bool {
		return o == name || !ended && len(name) >= 3 && strings.HasPrefix(o, name)
	})
}

// jsonValues are the values that a text consists of, members of lists one by one.
// whole is false if it is no JSON.
func jsonValues(text string) (values []json.RawMessage, whole bool) {
	dec := json.NewDecoder(strings.NewReader(text))
	for {
		var raw json.RawMessage
		switch err := dec.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return values, true
		case err != nil:
			return nil, false
		}
		var list []json.RawMessage
		if bytes.HasPrefix(raw, []byte("[")) && json.Unmarshal(raw, &list) == nil {
			values = append(values, list...)
			continue
		}
		values = append(values, raw)
	}
}

// jsonCall tells whether a value is an object that names an offered tool and has
// arguments.
func jsonCall(raw json.RawMessage, offered []string) bool {
	var o map[string]json.RawMessage
	if json.Unmarshal(raw, &o) != nil {
		return false
	}
	for _, key := range []string{"function", "function_call", "tool_call", "tool_use", "tool_calls", "function_calls"} {
		if inner := o[key]; bytes.HasPrefix(inner, []byte("{")) || bytes.HasPrefix(inner, []byte("[")) {
			values, _ := jsonValues(string(inner))
			return len(values) > 0 && jsonCall(values[0], offered)
		}
	}
	named, args := false, false
	for key, v := range o {
		var name string
		if len(o) == 1 && strings.Contains(key, "__") && slices.Contains(offered, key) && bytes.HasPrefix(v, []byte("{")) {
			return true // a name that only runnerd gives
		}
		switch key {
		case "name", "tool", "tool_name", "function", "recipient_name", "action":
			named = named || json.Unmarshal(v, &name) == nil && slices.Contains(offered, strings.TrimPrefix(name, "functions."))
		case "arguments", "parameters", "args", "params", "input", "tool_input", "action_input", "kwargs":
			args = true
		}
	}
	return named && args
}
