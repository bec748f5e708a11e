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
	"runnerd/task"
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

// Where error bodies have their words, best first; the code; and HTTP's status. The
// outer object's words come after those of what lies in error or errors.
var (
	wordFields   = []string{"message", "msg", "error_msg", "error_description", "detail", "reason", "title"}
	codeFields   = []string{"code", "error_code"}
	statusFields = []string{"status", "statusCode", "status_code", "code"}
)

// ParseComplaint reads an error body: {"error":{message,type,code}} with a code
// that is a string or a number, {"error":"words"}, {"message":…}, {"msg":…},
// {"detail":…} as text or as FastAPI's list, {"errors":[…]}, a problem document
// (RFC 9457), {"base_resp":{status_code,status_msg}}, or plain text.
func ParseComplaint(body []byte) Complaint {
	var outer Object
	list, _ := List(body) // some put it into a list
	if len(list) > 0 {
		outer = Parse(list[0])
	}
	if outer == nil {
		return Complaint{Message: words(string(body))}
	}
	inner := outer
	list, _ = List(outer["errors"])
	switch {
	case Parse(outer["error"]) != nil:
		inner = Parse(outer["error"])
	case len(list) > 0 && Parse(list[0]) != nil:
		inner = Parse(list[0])
	}
	// MiniMax and its like say it in base_resp, with a status of 200.
	base := Parse(outer["base_resp"])
	c := Complaint{Code: first(inner, codeFields), Type: plain(inner["type"]), Param: plain(inner["param"])}
	if c.Code == "" {
		c.Code = plain(base["status_code"])
	}
	for _, said := range []string{
		first(inner, wordFields), first(outer, wordFields), plain(base["status_msg"]), unless(boolean, spoken(outer["error"])), spoken(outer["errors"]),
	} {
		if c.Message = words(said); c.Message != "" {
			break
		}
	}
	// At a router metadata holds what the provider behind it said.
	if raw := plain(Parse(inner["metadata"])["raw"]); raw != "" {
		c.Message = words(c.Message + ": " + raw)
	}
	if c.Status = statusIn(inner); c.Status == 0 {
		c.Status = statusIn(outer)
	}
	return c
}

// first is what the first of these fields says that says something.
func first(o Object, fields []string) string {
	for _, f := range fields {
		if s := spoken(o[f]); s != "" {
			return s
		}
	}
	return ""
}

var boolean = regexp.MustCompile(`^(?:true|false|\{\s*\})$`)

// unless is s if it does not match.
func unless(bad *regexp.Regexp, s string) string {
	if bad.MatchString(s) {
		return ""
	}
	return s
}

// spoken is what a value says in words: a text, an object's words with the place that
// it names, a list's entries, or else the value as it is written.
func spoken(raw json.RawMessage) string {
	o := Parse(raw)
	list, _ := List(raw)
	switch {
	case o != nil:
		said := first(o, append(wordFields, "error"))
		if place, _ := List(o["loc"]); said != "" && len(place) > 0 {
			said = dotted(place) + ": " + said
		}
		if said != "" {
			return said
		}
	case len(list) > 0:
		var all []string
		for _, entry := range list {
			all = append(all, spoken(entry))
		}
		return strings.Join(all, "; ")
	}
	return plain(raw)
}

func dotted(place []json.RawMessage) string {
	var names []string
	for _, raw := range place {
		names = append(names, plain(raw))
	}
	return strings.Join(names, ".")
}

// statusIn is the HTTP status of an error that an object names; 0 if none.
func statusIn(o Object) int {
	for _, f := range statusFields {
		if n, ok := Count(o[f]); ok && n >= 400 && n < 600 {
			return int(n)
		}
	}
	return 0
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
		said = o.Has("errors") || o.Has("detail") || o.Has("message") && Parse(o["message"]) == nil || o.Has("msg") || o.Has("error_msg") || statusIn(o) != 0
	}
	if !said {
		return Complaint{}, false
	}
	return ParseComplaint(data), true
}

// Failed is the error of a complaint in an answer of status 200. Once some of the answer
// has come the request was a good one, so that words which nobody knows may pass.
func Failed(c Complaint, tools bool, received func() (task.Usage, int)) error {
	e := c.Classify(tools)
	if _, n := received(); n > 0 && e.Kind == llm.BadRequest && c.Status == 0 {
		e.Kind = llm.ServerError
	}
	return e
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
// or by its words where it names none that is known. What says nothing may pass;
// words that do not speak of what passes are a rejection, which waiting does not cure.
func typeKind(typ, message string) llm.Kind {
	for _, k := range saidKinds {
		if k.types.MatchString(typ) || k.words != nil && k.words.MatchString(message) {
			return k.kind
		}
	}
	if message == "" {
		return llm.ServerError
	}
	return llm.BadRequest
}

var saidKinds = []struct {
	kind         llm.Kind
	types, words *regexp.Regexp
}{
	{llm.RateLimited, regexp.MustCompile(`(?i)rate_?limit|throttl|too_?many`), regexp.MustCompile(`(?i)rate[- ]?limit|too many requests|throttl`)},
	{llm.Overloaded, regexp.MustCompile(`(?i)overloaded|unavailable`),
		regexp.MustCompile(`(?i)overloaded|\bbusy\b|at capacity|unavailable|warming up|loading model|model is (?:currently )?loading`)},
	{llm.Auth, regexp.MustCompile(`(?i)authentication|permission|unauthori[sz]ed|forbidden`),
		regexp.MustCompile(`(?i)(?:invalid|incorrect|wrong|missing|expired) (?:x-)?(?:api[ -_]?key|(?:access )?token|credential)|(?:api[ -_]?key|access token)[^.]{0,20} (?:invalid|incorrect|missing|expired)|` +
			`unauthori[sz]ed|not (?:authenticated|authori[sz]ed)|could not validate credentials|authentication (?:fail|is invalid|required)|login fail|^forbidden$`)},
	{llm.NotFound, regexp.MustCompile(`(?i)not_found`), regexp.MustCompile(`(?i)^(?:page |resource )?not found\.?$`)},
	{llm.BadRequest, regexp.MustCompile(`(?i)invalid_request`), regexp.MustCompile(`(?i)invalid (?:param|request|argument)`)},
	{llm.Timeout, regexp.MustCompile(`(?i)timeout`), regexp.MustCompile(`(?i)timed? ?out`)},
	{llm.ServerError, regexp.MustCompile(`(?i)api_error|server_?error|internal`),
		regexp.MustCompile(`(?i)internal (?:server )?error|server error|crash|out of memory|upstream|(?:bad|error) gateway|gateway error|connection (?:error|reset|closed|refused|lost)|connect error|network|` +
			`(?:try|retry)(?: it| the request)?(?: again| later)|temporar|went wrong|(?:unexpected|unknown) error|error occurred`)},
}
