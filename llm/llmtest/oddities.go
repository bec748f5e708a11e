package llmtest

import (
	"context"
	"embed"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"runnerd/llm"
	"runnerd/task"
)

//go:embed oddities/*.yaml
var oddities embed.FS

// Oddity is one thing that servers do on a wire, and what must come of it. The
// entries are the files of the folder oddities; adding one adds a test for each
// vendor that its wire names.
type Oddity struct {
	Name string `yaml:"name"`
	// Wire is what the vendor's server answers, one exchange for each request; the
	// last one answers all further requests.
	Wire map[string][]Exchange `yaml:"wire"`
	// Failed, if set, puts a failed call before the request, whose tool said this.
	Failed *string `yaml:"failed"`
	Want   Outcome `yaml:"want"`
}

// Exchange is one answer of a server, byte for byte.
type Exchange struct {
	// Asked is what the request must hold.
	Asked string `yaml:"asked"`
	// Refuses answers only a request that holds this text, with its status and body;
	// one without it gets the next exchange.
	Refuses string            `yaml:"refuses"`
	Status  int               `yaml:"status"` // default 200
	Header  map[string]string `yaml:"header"` // default: the wire's content type; "" for none
	// Events are written as the wire frames them: server-sent events, or lines.
	Events []string `yaml:"events"`
	// Body is written as it is, in place of Events.
	Body string `yaml:"body"`
	// Split writes so many bytes at once; 0 writes all.
	Split int `yaml:"split"`
	// Open leaves the connection open after the last byte.
	Open bool `yaml:"open"`
}

// Outcome is what a model must make of it.
type Outcome struct {
	Text      string     `yaml:"text"`
	Reasoning string     `yaml:"reasoning"`
	Calls     []WantCall `yaml:"calls"`
	Finish    llm.Finish `yaml:"finish"` // default: as Turn has it
	// Usage is input, output, and what of the input came from a cache; absent or 0
	// is not counted.
	Usage []int64 `yaml:"usage"`

	Error llm.Kind `yaml:"error"`
	Words string   `yaml:"words"` // in the error
	Retry bool     `yaml:"retry"` // whether it may be tried again
	// Spent tells that the failed call costs.
	Spent bool `yaml:"spent"`

	// Requests is how many the model makes for one answer; default 1.
	Requests int `yaml:"requests"`
	// Again asks the model a second time, which then makes one request.
	Again bool `yaml:"again"`
	// Adapted is in what the model says that it learned.
	Adapted string `yaml:"adapted"`
}

// WantCall is one call: its name and exact arguments, and its id if that matters.
type WantCall struct {
	ID   string `yaml:"id"`
	Name string `yaml:"name"`
	Args string `yaml:"args"`
}

// Within is how long an answer may take, a server that hangs included.
const Within = 10 * time.Second

// Oddities runs every entry that has the vendor's wire against the model that open
// returns for a base URL.
func Oddities(t *testing.T, vendor string, open func(t *testing.T, baseURL string) llm.Model) {
	n := 0
	for _, o := range readOddities(t) {
		exchanges := o.Wire[vendor]
		if exchanges == nil {
			continue
		}
		n++
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			s := &oddServer{t: t, vendor: vendor, exchanges: exchanges}
			srv := httptest.NewServer(s)
			t.Cleanup(func() {
				srv.CloseClientConnections()
				srv.Close()
			})
			o.check(t, open(t, srv.URL), s)
		})
	}
	if n == 0 {
		t.Fatalf("no entry has the wire of %q", vendor)
	}
}

func readOddities(t *testing.T) []Oddity {
	t.Helper()
	files, err := oddities.ReadDir("oddities")
	if err != nil {
		t.Fatal(err)
	}
	var all []Oddity
	for _, f := range files {
		data, err := oddities.ReadFile("oddities/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		dec := yaml.NewDecoder(strings.NewReader(string(data)))
		dec.KnownFields(true)
		var list []Oddity
		if err := dec.Decode(&list); err != nil {
			t.Fatalf("%s: %v", f.Name(), err)
		}
		all = append(all, list...)
	}
	for i, o := range all {
		if slices.ContainsFunc(all[:i], func(other Oddity) bool { return other.Name == o.Name }) {
			t.Fatalf("two entries are called %q", o.Name)
		}
		for vendor := range o.Wire {
			if !slices.Contains([]string{"openai", "anthropic", "ollama"}, vendor) {
				t.Fatalf("entry %q has the wire of %q, which no test reads", o.Name, vendor)
			}
		}
	}
	return all
}

// oddServer plays the exchanges of one entry.
type oddServer struct {
	t         *testing.T
	vendor    string
	exchanges []Exchange

	mu       sync.Mutex
	next     int
	requests int
}

func (s *oddServer) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *oddServer) take(body string) Exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	for s.next < len(s.exchanges)-1 && s.exchanges[s.next].Refuses != "" && !strings.Contains(body, s.exchanges[s.next].Refuses) {
		s.next++
	}
	x := s.exchanges[s.next]
	if x.Refuses == "" && s.next < len(s.exchanges)-1 {
		s.next++
	}
	return x
}

func (s *oddServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	x := s.take(string(body))
	if !strings.Contains(string(body), x.Asked) {
		s.t.Errorf("the request is %s, want %q in it", body, x.Asked)
	}
	head := w.Header()
	head.Set("Content-Type", "text/event-stream")
	if s.vendor == "ollama" {
		head.Set("Content-Type", "application/x-ndjson")
	}
	if x.Status/100 > 2 {
		head.Set("Content-Type", "application/json")
	}
	for name, value := range x.Header {
		head[http.CanonicalHeaderKey(name)] = []string{value}
		if value == "" {
			head[http.CanonicalHeaderKey(name)] = nil
		}
	}
	if x.Status != 0 {
		w.WriteHeader(x.Status)
	}
	s.write(w, x)
	if x.Open {
		<-r.Context().Done()
	}
}

func (s *oddServer) write(w http.ResponseWriter, x Exchange) {
	text := x.Body
	for _, e := range x.Events {
		if s.vendor == "ollama" {
			text += e + "\n"
		} else {
			text += "data: " + e + "\n\n"
		}
	}
	for step := x.Split; len(text) > 0; {
		n := len(text)
		if step > 0 {
			n = min(n, step)
		}
		if _, err := io.WriteString(w, text[:n]); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		text = text[n:]
	}
}

// request is what an entry's model is asked.
func (o Oddity) request() *llm.Request {
	req := &llm.Request{System: "You are a test.", Messages: []task.Message{Opening()}, Tools: Tools(), MaxOutputTokens: 1000}
	if o.Failed != nil {
		req.Messages = append(req.Messages,
			task.Message{Role: task.RoleAssistant, Calls: []task.ToolCall{{ID: "c1", Name: "mcp__files__list", Arguments: "{}"}}},
			task.Message{Role: task.RoleTool, CallID: "c1", Text: *o.Failed, IsError: true})
	}
	return req
}

func (o Oddity) check(t *testing.T, model llm.Model, s *oddServer) {
	t.Helper()
	want := o.Want
	ctx, cancel := context.WithTimeout(t.Context(), Within)
	defer cancel()
	req := o.request()
	got, err := model.Next(ctx, req)
	if requests := max(want.Requests, 1); s.asked() != requests {
		t.Errorf("%d requests, want %d", s.asked(), requests)
	}
	if want.Error != "" {
		want.checkError(t, err)
		return
	}
	if err != nil {
		t.Fatalf("got %v", err)
	}
	want.checkAnswer(t, got)
	if a, _ := model.(interface{ Adapted() []string }); want.Adapted != "" && !strings.Contains(strings.Join(a.Adapted(), "; "), want.Adapted) {
		t.Errorf("the model says %q, want %q in it", a.Adapted(), want.Adapted)
	}
	if want.Again {
		before := s.asked()
		if _, err := model.Next(ctx, req); err != nil || s.asked() != before+1 {
			t.Errorf("asked again: %v, %d requests", err, s.asked()-before)
		}
	}
}

func (want Outcome) checkError(t *testing.T, err error) {
	t.Helper()
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != want.Error {
		t.Fatalf("error %v, want kind %q", err, want.Error)
	}
	if !strings.Contains(err.Error(), want.Words) {
		t.Errorf("error %v, want %q in it", err, want.Words)
	}
	if e.Retryable() != want.Retry {
		t.Errorf("error %v: retryable is %v", err, e.Retryable())
	}
	var spent *llm.Spent
	if errors.As(err, &spent) != want.Spent {
		t.Errorf("error %v: that it costs is %v", err, !want.Spent)
	}
}

func (want Outcome) checkAnswer(t *testing.T, got *llm.Response) {
	t.Helper()
	if got.Text != want.Text || got.Reasoning != want.Reasoning {
		t.Errorf("text %q, reasoning %q, want %q, %q", got.Text, got.Reasoning, want.Text, want.Reasoning)
	}
	var calls []task.ToolCall
	for i, c := range want.Calls {
		calls = append(calls, task.ToolCall{Name: c.Name, Arguments: c.Args})
		if c.ID != "" && i < len(got.Calls) && got.Calls[i].ID != c.ID {
			t.Errorf("call %d has the id %q, want %q", i+1, got.Calls[i].ID, c.ID)
		}
	}
	compareCalls(t, calls, got.Calls)
	if finish := (Turn{Finish: want.Finish, Calls: calls}).Finished(); got.Finish != finish {
		t.Errorf("finish %q, want %q", got.Finish, finish)
	}
	counts := append(slices.Clone(want.Usage), 0, 0, 0)
	if usage := (task.Usage{Input: counts[0], Output: counts[1], CacheRead: counts[2]}); got.Usage != usage {
		t.Errorf("usage %+v, want %+v", got.Usage, usage)
	}
}
