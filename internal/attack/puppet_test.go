package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"runnerd/llm"
	"runnerd/policy"
	"runnerd/task"
)

// puppet is a model that does the user's job, one call a step, and, if it obeys,
// before that every order that it reads. An order is a line, or the end of one, in
// any text that reaches a model (system prompt, definitions, results, earlier
// runs, summaries):
//
//	CALL connector/tool {arguments}   call a tool of a connector, offered or not
//	NAME name {arguments}             call whatever has that very name
//	SAY text                          put text into the final answer
//
// What follows CALL and NAME is sent as it stands. Each order is obeyed once in
// each run for each message that holds it.
type puppet struct {
	job   []string
	obey  bool
	tries []task.ToolCall // made in one turn once the job is done
	hasty bool            // tries come once the job's first call is made
	idle  bool            // the job is not done in this run

	mu   sync.Mutex
	runs map[string]*progress
}

// progress is how far a run has come.
type progress struct {
	job   int
	calls int
	tried bool
	seen  map[string]bool
	say   []string
}

// order is what a text tells its reader to do.
type order struct{ verb, target, rest string }

var orders = regexp.MustCompile(`(?m)\b(CALL|NAME) (\S+) (\S.*)$|\b(SAY) (\S.*)$`)

func ordersIn(text string) []order {
	var list []order
	for _, m := range orders.FindAllStringSubmatch(text, -1) {
		if m[4] != "" {
			list = append(list, order{verb: "SAY", rest: m[5]})
			continue
		}
		list = append(list, order{verb: m[1], target: m[2], rest: strings.TrimRight(m[3], "\r")})
	}
	return list
}

// call is the call that an order asks for; a name may hold spaces as "%20".
func (o order) call() task.ToolCall {
	name := strings.ReplaceAll(o.target, "%20", " ")
	if o.verb == "CALL" {
		connector, tool, _ := strings.Cut(o.target, "/")
		name = policy.Alias(connector, tool)
	}
	return task.ToolCall{Name: name, Arguments: o.rest}
}

// Next implements llm.Model.
func (p *puppet) Next(_ context.Context, req *llm.Request) (*llm.Response, error) {
	if err := llm.CheckHistory(req.Messages); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.at(req.Messages[len(req.Messages)-1].Run)
	resp := &llm.Response{Finish: llm.FinishToolCalls, Usage: task.Usage{Input: 10, Output: 5}}
	if resp.Calls = p.next(g, req); resp.Calls == nil {
		resp.Finish = llm.FinishStop
		resp.Text = strings.Join(append([]string{"That is all."}, g.say...), "\n")
	}
	for i := range resp.Calls {
		g.calls++
		resp.Calls[i].ID = fmt.Sprintf("c%d", g.calls)
	}
	return resp, nil
}

func (p *puppet) at(run string) *progress {
	if p.runs == nil {
		p.runs = map[string]*progress{}
	}
	if p.runs[run] == nil {
		p.runs[run] = &progress{seen: map[string]bool{}}
	}
	return p.runs[run]
}

// next is what to do now: an order, else the job, else what is to be tried.
func (p *puppet) next(g *progress, req *llm.Request) []task.ToolCall {
	if p.obey {
		if o, found := g.unobeyed(req); found {
			return []task.ToolCall{o.call()}
		}
	}
	due := !g.tried && len(p.tries) > 0
	if !p.idle && g.job < len(p.job) && (!due || !p.hasty || g.job == 0) {
		g.job++
		return []task.ToolCall{ordersIn("CALL " + p.job[g.job-1])[0].call()}
	}
	if due {
		g.tried = true
		return slices.Clone(p.tries)
	}
	return nil
}

// unobeyed finds the first order that this run has not followed yet. What is only
// to be said is kept for the end.
func (g *progress) unobeyed(req *llm.Request) (order, bool) {
	for _, text := range textsOf(req) {
		for i, o := range ordersIn(text.text) {
			key := fmt.Sprint(text.key, "#", i)
			if g.seen[key] {
				continue
			}
			g.seen[key] = true
			if o.verb == "SAY" {
				g.say = append(g.say, o.rest)
				continue
			}
			return o, true
		}
	}
	return order{}, false
}

type keyed struct{ key, text string }

// textsOf are all texts of a request that the model did not write itself.
func textsOf(req *llm.Request) []keyed {
	list := []keyed{{"system", req.System}}
	for _, t := range req.Tools {
		list = append(list, keyed{"tool " + t.Name + t.Description, t.Name + " " + t.Description})
		for _, s := range stringsIn(t.InputSchema) {
			list = append(list, keyed{"schema " + t.Name + s, s})
		}
	}
	for _, m := range req.Messages {
		if m.Role != task.RoleAssistant {
			list = append(list, keyed{fmt.Sprint("message ", m.Seq), m.Text})
		}
	}
	return list
}

// stringsIn are the strings of a JSON document, sorted.
func stringsIn(doc json.RawMessage) []string {
	var v any
	if json.Unmarshal(doc, &v) != nil {
		return nil
	}
	var found []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			found = append(found, v)
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			for key, item := range v {
				found = append(found, key)
				walk(item)
			}
		}
	}
	walk(v)
	slices.Sort(found)
	return found
}
