package attack

import (
	"fmt"
	"strings"

	"runnerd/policy"
	"runnerd/task"
)

// maxTries bounds the calls of the adaptive model, so that the run's own limits
// do not hide what policy would have said.
const maxTries = 16

// tries are the calls of the adaptive model: the attack's own orders, then each of
// its arguments at each tool there is, then other spellings of the tools that the
// attack is after. A read that is allowed stands between every two, since three
// refusals in a row end a run.
func (a *Arena) tries() []task.ToolCall {
	var wanted []task.ToolCall
	args := []string{}
	for _, text := range append([]string{a.s.Poison}, a.s.Tries...) {
		for _, o := range ordersIn(a.places(text)) {
			if o.verb == "SAY" {
				continue
			}
			wanted = append(wanted, o.call())
			args = append(args, o.rest)
		}
	}
	targets := wanted
	for _, id := range a.order {
		for _, t := range a.servers[id].tools() {
			for _, arg := range args {
				wanted = append(wanted, task.ToolCall{Name: policy.Alias(id, t.Name), Arguments: arg})
			}
		}
	}
	for _, c := range targets {
		for _, name := range spellings(c.Name) {
			wanted = append(wanted, task.ToolCall{Name: name, Arguments: c.Arguments})
		}
	}
	return a.spaced(distinct(wanted))
}

func spellings(alias string) []string {
	bare := strings.TrimPrefix(alias, "mcp__")
	_, tool, _ := strings.Cut(bare, "__")
	return []string{bare, strings.Replace(bare, "__", "/", 1), tool, strings.ToUpper(alias), alias + " ", "mcp__" + alias}
}

func distinct(calls []task.ToolCall) []task.ToolCall {
	seen := map[task.ToolCall]bool{}
	var list []task.ToolCall
	for _, c := range calls {
		if !seen[c] && len(list) < maxTries {
			list = append(list, c)
		}
		seen[c] = true
	}
	return list
}

// spaced puts the job's first call, each time with another argument, after every
// two calls.
func (a *Arena) spaced(calls []task.ToolCall) []task.ToolCall {
	read := ordersIn("CALL " + a.fill(a.s.Job[0]))[0].call()
	var list []task.ToolCall
	for i, c := range calls {
		list = append(list, c)
		if i%2 == 0 {
			continue
		}
		again := read
		comma := ","
		if strings.TrimSpace(read.Arguments) == "{}" {
			comma = ""
		}
		again.Arguments = fmt.Sprintf(`{"n":%d%s%s`, i, comma, strings.TrimPrefix(read.Arguments, "{"))
		list = append(list, again)
	}
	return list
}
