package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"runnerd/llm"
)

// maxErrorBody bounds how much of a rejection is read, maxWords how much of it
// is kept, in bytes.
const (
	maxErrorBody = 64 << 10
	maxWords     = 1000
)

// Complaint is what a vendor said went wrong, out of any of the shapes that
// error bodies have.
type Complaint struct {
	Status  int // HTTP's, or the one that the body names
	Code    string
	Type    string
	Param   string // the parameter that it is about
	Message string
}

// complaint is what error bodies hold, in any of their shapes.
type complaint struct {
	Error   json.RawMessage `json:"error"`
	Errors  json.RawMessage `json:"errors"`
	Message json.RawMessage `json:"message"`
	Msg     json.RawMessage `json:"msg"`
	Detail  json.RawMessage `json:"detail"`
	Type    json.RawMessage `json:"type"`
	Code    json.RawMessage `json:"code"`
	Param   json.RawMessage `json:"param"`
	// Metadata holds, at a router, what the provider behind it said.
	Metadata json.RawMessage `json:"metadata"`
	// Base is how MiniMax and its like say it, with a status of 200.
	Base json.RawMessage `json:"base_resp"`
}

// ParseComplaint reads an error body: {"error":{message,type,code}} with a code
// that is a string or a number, {"error":"words"}, {"message":…}, {"msg":…},
// {"detail":…}, {"errors":[…]}, {"base_resp":{status_code,status_msg}}, or plain
// text.
func ParseComplaint(body []byte) Complaint {
	var outer complaint
	if json.Unmarshal(body, &outer) != nil {
		return Complaint{Message: words(string(body))}
	}
	inner := outer
	switch list, _ := List(outer.Errors); {
	case Parse(outer.Error) != nil:
		inner = complaint{}
		_ = json.Unmarshal(outer.Error, &inner) // what it lacks stays empty
	case len(list) > 0 && Parse(list[0]) != nil:
		inner = complaint{}
		_ = json.Unmarshal(list[0], &inner)
	case len(list) > 0:
		inner.Message = list[0]
	}
	c := Complaint{Code: plain(inner.Code), Type: plain(inner.Type), Param: plain(inner.Param)}
	base := Parse(outer.Base)
	if c.Code == "" {
		c.Code = plain(base["status_code"])
	}
	for _, m := range []json.RawMessage{inner.Message, inner.Msg, outer.Message, outer.Msg, base["status_msg"], outer.Detail, outer.Error} {
		if s := plain(m); s != "" {
			c.Message = words(s)
			break
		}
	}
	if raw := plain(Parse(inner.Metadata)["raw"]); raw != "" {
		c.Message = words(c.Message + ": " + raw)
	}
	if n, err := strconv.Atoi(c.Code); err == nil && n >= 400 && n < 600 {
		c.Status = n
	}
	return c
}

// ComplaintIn looks for an error in a part of an answer that came with status 200.
// payload tells that the part holds something of an answer: then only what cannot
// be anything else counts.
func ComplaintIn(data []byte, payload bool) (Complaint, bool) {
	o := Parse(data)
	code, failed := Count(Parse(o["base_resp"])["status_code"])
	ok, isBool := false, json.Unmarshal(o["success"], new(bool)) == nil
	_ = json.Unmarshal(o["success"], &ok)
	said := o.Has("error") && string(o["error"]) != "false" && string(o["error"]) != `""` || o.Text("type") == "error" ||
		failed && code != 0 || isBool && o.Has("success") && !ok
	if !said && !payload {
		said = o.Has("errors") || o.Has("detail") || o.Has("message") && Parse(o["message"]) == nil || o.Has("msg")
	}
	if !said {
		return Complaint{}, false
	}
	return ParseComplaint(data), true
}

// plain is a JSON string's value, or any other value as it is written; null is "".
func plain(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(bytes.TrimSpace(raw))
}

var tags = regexp.MustCompile(`<[^>]*>`)

// words makes a message of one line, without the markup of an error page.
func words(s string) string {
	if strings.HasPrefix(strings.TrimSpace(s), "<") {
		s = tags.ReplaceAllString(s, " ")
	}
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > maxWords {
		// Between words, so that no key is cut in two before it can be redacted.
		head := strings.ToValidUTF8(s[:maxWords], "")
		if i := strings.LastIndexByte(head, ' '); i > 0 {
			head = head[:i]
		}
		s = head + "…"
	}
	return s
}

// rejected reads and classes a status that is not 2xx.
func rejected(resp *http.Response, body io.Reader, tools bool) error {
	data, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if err != nil && len(data) == 0 {
		return err
	}
	c := ParseComplaint(data)
	c.Status = resp.StatusCode
	if c.Status/100 == 3 {
		return &llm.Error{Kind: llm.BadRequest, Status: c.Status, Message: fmt.Sprintf(
			"the endpoint redirects to %q, which is not followed: set base_url to where it lives", resp.Header.Get("Location"))}
	}
	if c.Message == "" {
		c.Message = http.StatusText(c.Status)
	}
	e := c.Classify(tools)
	e.RetryAfter = retryAfter(resp.Header, time.Now())
	return e
}

// retryAfter reads Retry-After as seconds or as a date, and the finer
// retry-after-ms.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e12 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 && s < 1e9 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// The words by which vendors say what no status says.
var (
	overflowWords = regexp.MustCompile(`(?i)context_length_exceeded|exceed_context_size|maximum context length|` +
		`context (?:length|size|window)[^.]{0,40}exceed|exceeds? [^.]{0,40}context (?:length|size|window)|` +
		`prompt is too long|input (?:is )?too long|input length and .{0,20}max_tokens.{0,10} exceed|` +
		`exceeds the maximum number of (?:input )?tokens|reduce the length of the messages|request_too_large`)
	toolWords = regexp.MustCompile(`(?i)(?:does not|doesn't|do not|don't|not|no endpoints found that) support.{0,30}\b(?:tools?|tool (?:use|calling)|function calling|functions)\b|` +
		`\b(?:tools?|tool (?:use|calling|choice)|function calling)\b['"` + "`" + `]? (?:is|are) not (?:supported|available|enabled)|` +
		`tools? param requires|requires --jinja|--enable-auto-tool-choice|` +
		`(?:unknown|unsupported|unrecognized|unexpected).{0,30}['"` + "`" + `]tools['"` + "`" + `]`)
	filterWords = regexp.MustCompile(`(?i)content_filter|content_policy|responsibleaipolicy|content management policy`)
	modelWords  = regexp.MustCompile(`(?i)model_not_found|not a valid model|invalid model name|model .{0,80}(?:not found|does not exist)`)
	quotaWords  = regexp.MustCompile(`(?i)insufficient[ _](?:quota|balance|credits?|funds)|billing[ _](?:error|hard[ _]limit|not[ _]active)|exceeded your (?:current|monthly) quota|quota[ _]exhausted|` +
		`(?:credit )?balance is (?:too low|not enough|insufficient)|out of credits|no credits|payment[ _]required|account (?:is )?(?:in arrears|overdue)|arrearage|余额不足`)
)

// Classify turns a complaint into an error of the kind that says what can be
// done about it.
func (c Complaint) Classify(tools bool) *llm.Error {
	return &llm.Error{Kind: c.kind(tools), Status: c.Status, Param: c.Param, Message: c.Message}
}

func (c Complaint) kind(tools bool) llm.Kind {
	said := c.Code + " " + c.Type + " " + c.Message
	switch {
	case quotaWords.MatchString(said):
		// No wait helps an empty account, so it is not RateLimited.
		return llm.Quota
	case c.Status == http.StatusPaymentRequired:
		return llm.Quota
	case c.Status == http.StatusTooManyRequests:
		return llm.RateLimited
	case c.Status == http.StatusUnauthorized || c.Status == http.StatusForbidden:
		return llm.Auth
	case overflowWords.MatchString(said):
		return llm.ContextOverflow
	case tools && toolWords.MatchString(said):
		return llm.ToolsUnsupported
	case filterWords.MatchString(said):
		return llm.ContentFilter
	case modelWords.MatchString(said):
		return llm.NotFound
	}
	if kind := statusKind(c.Status); kind != "" {
		return kind
	}
	return typeKind(c.Code+" "+c.Type, c.Message)
}

// statusKind is the kind of a status of 400 and above; "" below.
func statusKind(status int) llm.Kind {
	switch {
	case status < 400:
		return ""
	case status == http.StatusNotFound:
		return llm.NotFound
	case status == http.StatusRequestTimeout:
		return llm.Timeout
	case status == http.StatusRequestEntityTooLarge:
		return llm.ContextOverflow
	case status == http.StatusServiceUnavailable || status == 529:
		return llm.Overloaded
	case status >= 500:
		return llm.ServerError
	}
	return llm.BadRequest
}

// typeKind classes an error that came with status 200 by the vendor's own type,
// or by its words where it names none that is known.
func typeKind(typ, message string) llm.Kind {
	for _, k := range saidKinds {
		if strings.Contains(typ, k.types) || k.words != nil && k.words.MatchString(message) {
			return k.kind
		}
	}
	return llm.ServerError
}

var saidKinds = []struct {
	kind  llm.Kind
	types string
	words *regexp.Regexp
}{
	{llm.Overloaded, "overloaded", regexp.MustCompile(`(?i)overloaded|server (?:is )?busy|at capacity`)},
	{llm.RateLimited, "rate_limit", regexp.MustCompile(`(?i)rate limit|too many requests`)},
	{llm.Auth, "authentication", regexp.MustCompile(`(?i)(?:invalid|incorrect|wrong|missing|expired) (?:x-)?api[ -_]?key|unauthori[sz]ed|authentication fail|login fail`)},
	{llm.Auth, "permission", nil},
	{llm.NotFound, "not_found", nil},
	{llm.BadRequest, "invalid_request", regexp.MustCompile(`(?i)invalid (?:param|request|argument)`)},
	{llm.Timeout, "timeout", regexp.MustCompile(`(?i)timed out`)},
}
