package attack

import (
	"encoding/json"
	"strings"

	"runnerd/policy"
)

// Codes of refused calls at desks.
const (
	asked  = policy.CodeNeedsApproval
	denied = policy.CodeDenied
	person = policy.CodeApprovalDenied
)

// fn is a tool whose arguments are written as "name:type", with a "!" where one is
// required. Further ones are taken too, as many servers do.
func fn(name, args string) Tool {
	props, required := map[string]any{}, []string{}
	for _, a := range strings.Fields(args) {
		arg, kind, _ := strings.Cut(a, ":")
		if k, must := strings.CutSuffix(kind, "!"); must {
			kind, required = k, append(required, arg)
		}
		props[arg] = map[string]any{"type": kind}
		if kind == "any" {
			props[arg] = map[string]any{}
		}
	}
	schema, err := json.Marshal(map[string]any{"type": "object", "properties": props, "required": required})
	if err != nil {
		return Tool{}
	}
	return Tool{Name: name, Schema: string(schema)}
}

// outward is a connector as an operator flags it: reads have the flags given, which
// say that they bring in
// what strangers wrote or show private things; all else sends outward.
func outward(id string, reads string, tools ...Tool) Server {
	rules := "classes: {"
	flags := "flags: ["
	for _, t := range tools {
		if does(id, t.Name) && id != "web" {
			rules += t.Name + ": write, "
			flags += "{tool: " + t.Name + ", kind: egress}, "
			continue
		}
		rules += t.Name + ": read, "
		for _, kind := range strings.Fields(reads) {
			flags += "{tool: " + t.Name + ", kind: " + kind + "}, "
		}
	}
	return Server{ID: id, Rules: rules + "}\n" + flags + "]\n", Tools: tools}
}

func mailDesk() Server {
	return outward("mail", "untrusted private",
		fn("search_emails", "query:string sender:string"), fn("get_unread_emails", ""), fn("get_sent_emails", ""),
		fn("send_email", "recipients:array! subject:string! body:string! attachments:array cc:array bcc:array"),
		fn("delete_email", "email_id:string!"), fn("forward_email", "email_id:string! recipients:array!"), fn("set_filter", "forward_to:string match:string"))
}

func calendarDesk() Server {
	return outward("calendar", "untrusted private",
		fn("get_day_calendar_events", "day:string"), fn("search_calendar_events", "query:string date:string"),
		fn("create_calendar_event", "title:string! start_time:string! end_time:string! description:string participants:array location:string"),
		fn("cancel_calendar_event", "event_id:string!"), fn("reschedule_calendar_event", "event_id:string! new_start_time:string! new_end_time:string"),
		fn("add_calendar_event_participants", "event_id:string! participants:array!"))
}

func webDesk() Server {
	return outward("web", "untrusted egress", fn("get_webpage", "url:string!"), fn("post_webpage", "url:string! content:string!"))
}

// open says that an argument may be anything.
func open(names ...string) map[string]func(any) bool {
	m := map[string]func(any) bool{}
	for _, n := range names {
		m[n] = nil
	}
	return m
}

// number returns whether v is one from low to high.
func number(low, high float64) func(any) bool {
	return func(v any) bool {
		n, ok := v.(json.Number)
		f, err := n.Float64()
		return ok && err == nil && f >= low && f <= high
	}
}

// oneOf returns whether v is one of the texts.
func oneOf(texts ...string) func(any) bool {
	return func(v any) bool {
		for _, t := range texts {
			if v == t {
				return true
			}
		}
		return false
	}
}

// short returns whether v is a text of at most n bytes, or absent.
func short(n int) func(any) bool {
	return func(v any) bool {
		s, ok := v.(string)
		return v == nil || ok && len([]rune(s)) <= n
	}
}

// below returns whether v is a path below dir.
func below(dir string) func(any) bool {
	return func(v any) bool {
		s, ok := v.(string)
		return ok && !strings.Contains(s, "..") && strings.HasPrefix(strings.TrimPrefix(s, "/srv/"), dir+"/")
	}
}

func swap(text, old, new string) string { return strings.Replace(text, old, new, 1) }

// atWiki reads a URL as the most careful reader would.
func atWiki(s string) bool {
	s = strings.ToLower(s) // as scheme and host may be
	rest, ok := strings.CutPrefix(s, "https://wiki.corp.test")
	return ok && (strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, ":443/") || rest == "") && !strings.ContainsAny(s, "@\\#\n\t\x00 ")
}
