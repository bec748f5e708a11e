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
	Message string
}

// ParseComplaint reads an error body: {"error":{message,type,code}} with a code
// that is a string or a number, {"error":"words"}, {"message":…},
// {"detail":…}, or plain text.
func ParseComplaint(body []byte) Complaint {
	var outer struct {
		Error   json.RawMessage `json:"error"`
		Message json.RawMessage `json:"message"`
		Detail  json.RawMessage `json:"detail"`
		Type    json.RawMessage `json:"type"`
		Code    json.RawMessage `json:"code"`
		// Metadata holds, at a router, what the provider behind it said.
		Metadata struct {
			Raw json.RawMessage `json:"raw"`
		} `json:"metadata"`
	}
	if json.Unmarshal(body, &outer) != nil {
		return Complaint{Message: words(string(body))}
	}
	inner := outer
	if len(outer.Error) > 0 && outer.Error[0] == '{' {
		inner.Message, inner.Type, inner.Code = nil, nil, nil
		_ = json.Unmarshal(outer.Error, &inner) // what it lacks stays empty
	}
	c := Complaint{Code: plain(inner.Code), Type: plain(inner.Type)}
	for _, m := range []json.RawMessage{inner.Message, outer.Message, outer.Detail, outer.Error} {
		if s := plain(m); s != "" {
			c.Message = words(s)
			break
		}
	}
	if raw := plain(inner.Metadata.Raw); raw != "" {
		c.Message = words(c.Message + ": " + raw)
	}
	if n, err := strconv.Atoi(c.Code); err == nil && n >= 400 && n < 600 {
		c.Status = n
	}
	return c
}

// plain is a JSON string's value, or any other value as it is written; null is "".
func plain(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
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
		s = strings.ToValidUTF8(s[:maxWords], "") + "…"
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
	quotaWords  = regexp.MustCompile(`(?i)insufficient_quota|billing_error|exceeded your current quota|credit balance is too low`)
)

// Classify turns a complaint into an error of the kind that says what can be
// done about it.
func (c Complaint) Classify(tools bool) *llm.Error {
	return &llm.Error{Kind: c.kind(tools), Status: c.Status, Message: c.Message}
}

func (c Complaint) kind(tools bool) llm.Kind {
	said := c.Code + " " + c.Type + " " + c.Message
	switch {
	case quotaWords.MatchString(said):
		// No wait helps an empty account, so it is not RateLimited.
		return llm.BadRequest
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
	return typeKind(c.Code + " " + c.Type)
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

// typeKind classes an error that came inside a stream of status 200 by the
// vendor's own type.
func typeKind(typ string) llm.Kind {
	for _, k := range []struct {
		part string
		kind llm.Kind
	}{
		{"overloaded", llm.Overloaded}, {"rate_limit", llm.RateLimited}, {"authentication", llm.Auth},
		{"permission", llm.Auth}, {"not_found", llm.NotFound}, {"invalid_request", llm.BadRequest},
		{"timeout", llm.Timeout},
	} {
		if strings.Contains(typ, k.part) {
			return k.kind
		}
	}
	return llm.ServerError
}
