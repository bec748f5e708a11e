package connector

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"runnerd/policy"
	"runnerd/redact"
	"runnerd/task"
)

func TestParseTools(t *testing.T) {
	const ok = `"inputSchema":{"type":"object"}`
	tests := []struct {
		name, tools string
		want        string // names kept
		warn        string // in a warning
	}{
		{"plain", `[{"name":"a",` + ok + `},{"name":"b__c",` + ok + `}]`, "a b__c", ""},
		{"none", `[]`, "", ""},
		{"duplicate", `[{"name":"a",` + ok + `},{"name":"b",` + ok + `},{"name":"a","description":"other",` + ok + `}]`, "b", "tool a is dropped: the server lists 2 of that name"},
		{"duplicate of a bad one", `[{"name":"a",` + ok + `},{"name":"a"}]`, "", "tool a is dropped"},
		{"null schema", `[{"name":"a","inputSchema":null},{"name":"b",` + ok + `}]`, "b", "inputSchema is missing"},
		{"no schema", `[{"name":"a"}]`, "", "inputSchema is missing"},
		{"schema of another type", `[{"name":"a","inputSchema":true}]`, "", "no JSON object"},
		{"odd output schema", `[{"name":"a","outputSchema":[],` + ok + `}]`, "", "outputSchema is no JSON object"},
		{"null output schema", `[{"name":"a","outputSchema":null,` + ok + `}]`, "a", ""},
		{"empty name", `[{"name":"",` + ok + `}]`, "", "its name is empty"},
		{"name with space", `[{"name":"a b",` + ok + `}]`, "", "its name"},
		{"look-alike", `[{"name":"reаd",` + ok + `}]`, "", "its name"},
		{"glob", `[{"name":"*",` + ok + `}]`, "", "its name"},
		{"long name", `[{"name":"` + strings.Repeat("a", 129) + `",` + ok + `}]`, "", "its name"},
		{"number for a name", `[{"name":5,` + ok + `},{"name":"b",` + ok + `}]`, "b", "malformed"},
		{"null", `[null,{"name":"b",` + ok + `}]`, "b", "tool 1"},
		{"huge description", `[{"name":"a","description":"` + strings.Repeat("a", maxDescription+1) + `",` + ok + `}]`, "", "description has more than"},
		{"huge schema", `[{"name":"a","inputSchema":{"x":"` + strings.Repeat("a", maxSchema) + `"}}]`, "", "has more than"},
		{"odd annotations", `[{"name":"a","annotations":{"readOnlyHint":"yes"},` + ok + `}]`, "", "annotations are malformed"},
		{"parameter as header", `[{"name":"a","inputSchema":{"properties":{"x":{"type":"string","x-mcp-header":"Region"},"y":true}}}]`, "a", ""},
		{"header with a blank", `[{"name":"a","inputSchema":{"properties":{"x":{"type":"string","x-mcp-header":"My Region"}}}},{"name":"b",` + ok + `}]`, "b", "My Region is no name"},
		{"header twice, in other cases", `[{"name":"a","inputSchema":{"properties":{"x":{"type":"string","x-mcp-header":"A"},"y":{"properties":{"z":{"type":"boolean","x-mcp-header":"a"}}}}}}]`, "", "comes twice"},
		{"object as header", `[{"name":"a","inputSchema":{"properties":{"x":{"type":"object","x-mcp-header":"A"}}}}]`, "", "its type is object"},
		{"null annotations", `[{"name":"a","annotations":null,` + ok + `}]`, "a", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var raw []json.RawMessage
			if err := json.Unmarshal([]byte(tt.tools), &raw); err != nil {
				t.Fatal(err)
			}
			list, warnings := plain.parse(raw)
			var names []string
			for _, l := range list {
				names = append(names, l.Name)
				if l.Hash != l.DefinitionHash() || l.Hash == "" {
					t.Errorf("%s has hash %q", l.Name, l.Hash)
				}
			}
			if got := strings.Join(names, " "); got != tt.want {
				t.Errorf("kept %q, want %q", got, tt.want)
			}
			got := strings.Join(warnings, "\n")
			if tt.warn == "" && got != "" || !strings.Contains(got, tt.warn) {
				t.Errorf("warnings %q, want %q", got, tt.warn)
			}
		})
	}
}

// plain reads definitions as they are.
var plain = definitions{redact: func(s string) string { return s }, schema: func(json.RawMessage) error { return nil }}

func TestParseToolHints(t *testing.T) {
	absent, err := plain.tool(raw(`{"name":"a","inputSchema":{},"annotations":{"destructiveHint":false}}`))
	if err != nil {
		t.Fatal(err)
	}
	said, err := plain.tool(raw(`{"name":"a","inputSchema":{ },"annotations":{"readOnlyHint":false,"destructiveHint":false}}`))
	if err != nil {
		t.Fatal(err)
	}
	if absent.Annotations.ReadOnly != nil || said.Annotations.ReadOnly == nil || *said.Annotations.ReadOnly {
		t.Errorf("absent %v, false %v", absent.Annotations.ReadOnly, said.Annotations.ReadOnly)
	}
	if absent.Hash == said.Hash {
		t.Error("the hash does not tell absent from false")
	}
	spaced, err := plain.tool(raw(`{ "name" : "a", "annotations":{"destructiveHint": false}, "inputSchema":{ } }`))
	if err != nil || spaced.Hash != absent.Hash {
		t.Errorf("white space changes the hash: %v", err)
	}
}

func FuzzParseTool(f *testing.F) {
	for _, s := range []string{`{"name":"a","inputSchema":{"type":"object"}}`, `{"name":"a","inputSchema":{},"annotations":{"readOnlyHint":true}}`, `null`, `[]`, `{"name":"\u0000"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tool, err := plain.tool(data)
		if err != nil {
			return
		}
		if !toolName.MatchString(tool.Name) || !json.Valid(tool.InputSchema) || tool.InputSchema[0] != '{' || tool.Hash == "" {
			t.Errorf("accepted %q as %+v", data, tool)
		}
	})
}

func filterAll(t testing.TB, in string, limit int) (out string, dropped int64, err error) {
	t.Helper()
	var noise atomic.Int64
	f := newLineFilter(strings.NewReader(in), limit, &noise, func([]byte) {})
	for {
		line, err := f.next()
		if errors.Is(err, io.EOF) {
			return out, noise.Load(), nil
		}
		if err != nil {
			return out, noise.Load(), err
		}
		out += string(line)
	}
}

func TestLineFilter(t *testing.T) {
	const m = `{"jsonrpc":"2.0","id":1,"result":{}}`
	tests := []struct {
		name, in, out string
		dropped       int64
		fails         bool
	}{
		{"messages", m + "\n" + m + "\r\n", m + "\n" + m + "\r\n", 0, false},
		{"no last end", m, m + "\n", 0, false},
		{"batch", "[" + m + "]\n", "[" + m + "]\n", 0, false},
		{"text", "listening on 1\n" + m + "\n", m + "\n", 1, false},
		{"other JSON", `{"level":"info"}` + "\n" + `"x"` + "\n5\n" + m + "\n", m + "\n", 3, false},
		{"half a message", m[:10] + "\n" + m + "\n", m + "\n", 1, false},
		{"blank", "\n \n\n" + m + "\n", m + "\n", 0, false},
		{"byte order mark", "\ufeff" + m + "\n" + m + "\n", m + "\n", 1, false},
		{"long line", `{"jsonrpc":"2.0","x":"` + strings.Repeat("y", 1<<20) + "\"}\n", "", 0, true},
		{"long noise", strings.Repeat("y", 1<<20) + "\n", "", 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, dropped, err := filterAll(t, tt.in, 1<<19)
			var a *advised
			if out != tt.out || dropped != tt.dropped || errors.As(err, &a) != tt.fails || (err != nil) != tt.fails {
				t.Errorf("%q, %d dropped, %v", out, dropped, err)
			}
		})
	}
}

// What passes the filter is messages and nothing else.
func FuzzLineFilter(f *testing.F) {
	f.Add(`{"jsonrpc":"2.0"}` + "\nx\n")
	f.Add("[\n]\n")
	f.Fuzz(func(t *testing.T, in string) {
		out, _, err := filterAll(t, in, 1<<10)
		if err != nil {
			return
		}
		for line := range strings.Lines(out) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%q lets %q pass", in, line)
			}
		}
	})
}

func TestStderrTail(t *testing.T) {
	tail := &stderrTail{redact: func(s string) string { return strings.ReplaceAll(s, "secret", "***") }, log: New(Options{}).log}
	tail.drain(strings.NewReader("a secret\n\n\x1b[31mred\x1b[0m\n" + strings.Repeat("z", 3*stderrLine) + "\nlast\n"))
	lines := strings.Split(tail.text(), "\n")
	if len(lines) != 4 || lines[0] != "a ***" || lines[1] != `\x1b[31mred\x1b[0m` || len(lines[2]) > stderrLine+3 || lines[3] != "last" {
		t.Errorf("lines %.100q", lines)
	}
	tail.drain(strings.NewReader(strings.Repeat("filler\n", 100_000)))
	if n := len(tail.text()); n > stderrBytes || n < stderrBytes/2 {
		t.Errorf("%d bytes kept", n)
	}
	if w := tail.lastWords(); !strings.HasSuffix(w, "filler | filler") {
		t.Errorf("last words %q", w)
	}
}

// flattener is a session that only turns results into text.
func (p *Pool) flattener() *session { return &session{conn: &conn{pool: p}} }

func TestFlatten(t *testing.T) {
	res := raw(`{"content":[{"type":"text","text":"one"},{"type":"image","mimeType":"image/png","data":"MTIzNDU="},{"type":"audio","data":"MQ=="},
		{"type":"resource_link","uri":"https://example.com/x","name":"doc\nument"},{"type":"resource","resource":{"uri":"file:///a","text":"inside"}},
		{"type":"resource","resource":{"uri":"file:///b","mimeType":"application/pdf","blob":"MTIz"}},{"type":"resource"},{"type":"text","text":"bad ` + "\xff" + ` byte"}],
		"structuredContent":{"not":"shown"},"isError":true}`)
	want := strings.Join([]string{
		"one", "[image, image/png, 5 bytes, not shown]", "[audio, unknown type, 1 bytes, not shown]",
		"[link, not followed: https://example.com/x doc ument]", "inside",
		"[resource file:///b, application/pdf, 3 bytes, not shown]", "[resource without contents]", "bad \uFFFD byte",
	}, "\n")
	if got := New(Options{}).flattener().flatten(res); got.Text != want || !got.IsError || got.Cut {
		t.Errorf("flatten: %+v", got)
	}
}

func TestCutMiddle(t *testing.T) {
	s := strings.Repeat("ä", 1000) + strings.Repeat("ö", 1000)
	got, cut := cutMiddle(s, 1001)
	if !cut || !strings.HasPrefix(got, "ää") || !strings.HasSuffix(got, "öö") || !json.Valid([]byte(`"`+strings.ReplaceAll(got, "\n", "")+`"`)) || len(got) > 1100 {
		t.Errorf("%d bytes, cut %v", len(got), cut)
	}
	if got, cut := cutMiddle("short", 5); cut || got != "short" {
		t.Errorf("%q %v", got, cut)
	}
}

// However a body is cut into reads, the SDK gets the same, and of a server's own
// requests nothing.
func FuzzEvents(f *testing.F) {
	f.Add("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n", 5)
	f.Add(": x\r\n\r\nid: 5\ndata: {\"id\":1,\r\ndata: \"method\":\"ping\"}\r\n\r\n", 20)
	f.Fuzz(func(t *testing.T, body string, at int) {
		at = min(max(at, 0), len(body))
		sifted := func(parts ...io.Reader) string {
			s := &session{}
			s.inlet.session = s
			_ = s.inlet.asked(t.Context(), []byte(`{"id":1,"method":"tools/call"}`))
			b := &siftBody{in: bufio.NewReader(io.MultiReader(parts...)), rt: &originRT{limit: 1 << 20, session: s}}
			b.more = b.event
			var out strings.Builder
			for b.err == nil {
				var next []byte
				next, b.err = b.more(nil)
				out.Write(next)
			}
			return out.String()
		}
		if strings.Contains(body, "method") {
			return // an answer of ours needs a server
		}
		one := sifted(strings.NewReader(body))
		if two := sifted(strings.NewReader(body[:at]), strings.NewReader(body[at:])); one != two {
			t.Errorf("%q in one, %q in two", one, two)
		}
	})
}

// A tool that no call could be checked against is left out when the list is
// read; its siblings live.
func TestSchemaThatDoesNotCompile(t *testing.T) {
	for name, schema := range map[string]string{
		"E4 required inside properties": `{"type":"object","properties":{"a":{"type":"string"},"required":["a"]}}`,
		"E4 type of no kind":            `{"type":"objekt"}`,
		"E4 reference that leads away":  `{"type":"object","properties":{"a":{"$ref":"https://example.com/a.json"}}}`,
		"E4 reference to nothing":       `{"$ref":"#/definitions/none"}`,
		"E4 broken pattern":             `{"type":"object","properties":{"a":{"pattern":"["}}}`,
		"E4 properties is a list":       `{"type":"object","properties":[]}`,
		"E4 deep":                       strings.Repeat(`{"not":`, 300) + `{}` + strings.Repeat(`}`, 300),
	} {
		t.Run(name, func(t *testing.T) {
			line := `{"jsonrpc":"2.0","id":ID,"result":{"tools":[{"name":"bad","inputSchema":` + schema + `},{"name":"good","inputSchema":{"type":"object"}}]}}`
			p := testPool(t, func(o *Options) { o.Schema = policy.SchemaError }, stdioSpec(t, "list", line))
			tools, err := p.Tools(t.Context(), "x")
			if err != nil || len(tools) != 1 || tools[0].Name != "good" {
				t.Errorf("%+v, %v", tools, err)
			}
			if w := p.Status()[0].Warnings; len(w) != 1 || !strings.Contains(w[0], "tool 1 (bad) is dropped: no call of it could be checked: ") {
				t.Errorf("warnings %q", w)
			}
		})
	}
}

// What a server says of itself holds no secret, neither in the list nor in what
// people see.
func TestDefinitionsHoldNoSecret(t *testing.T) {
	const secret = "hunter2-hunter2"
	hide := redact.New()
	hide.Replace([]redact.Secret{{Name: "pw", Value: secret}})
	escaped := ""
	for _, r := range secret {
		escaped += fmt.Sprintf(`\u%04x`, r)
	}
	for name, tool := range map[string]string{
		"I12 description": `{"name":"a","description":"use ` + secret + `","inputSchema":{"type":"object"}}`,
		"I12 escaped":     `{"name":"a","description":"use ` + escaped + `","inputSchema":{"type":"object"}}`,
		"I12 title":       `{"name":"a","title":"` + secret + `","inputSchema":{"type":"object"}}`,
		"I12 schema":      `{"name":"a","inputSchema":{"type":"object","properties":{"x":{"default":"` + escaped + `","maximum":12345678901234567890}}}}`,
		"I12 key":         `{"name":"a","inputSchema":{"type":"object","properties":{"` + escaped + `":{"type":"string"}}}}`,
		"I12 output":      `{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"object","title":"` + secret + `"}}`,
		"I12 annotations": `{"name":"a","annotations":{"title":"` + escaped + `"},"inputSchema":{"type":"object"}}`,
		"I12 name":        `{"name":"` + secret + `","inputSchema":{"type":"object"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			line := `{"jsonrpc":"2.0","id":ID,"result":{"tools":[` + tool + `]}}`
			p := testPool(t, func(o *Options) { o.Redact = hide.Text }, stdioSpec(t, "list", line))
			tools, err := p.Tools(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			all, _ := json.Marshal([]any{tools, p.Status()})
			if strings.Contains(string(all), secret) {
				t.Errorf("the secret is in %s", all)
			}
			if len(tools) == 1 && !strings.Contains(string(all), "[redacted:pw]") || len(tools) == 0 && name != "I12 name" {
				t.Errorf("tools %s", all)
			}
		})
	}
}

// Wherever a text is cut, no half of a secret survives.
func TestNoHalfOfASecret(t *testing.T) {
	const secret = "0123456789abcdefghijklmnopqrstuvwxyz"
	hide := redact.New()
	hide.Replace([]redact.Secret{{Name: "pw", Value: secret}})
	half := func(text string) bool {
		return strings.Contains(text, secret[:8]) || strings.Contains(text, secret[len(secret)-8:])
	}
	for before := range 2 * len(secret) {
		const limit = 400
		p := New(Options{Redact: hide.Text, Limits: Limits{ResultBytes: limit}})
		line, _ := json.Marshal(strings.Repeat("x", limit/4*3-before) + secret + strings.Repeat("y", 1000) + secret + strings.Repeat("z", limit/4-before))
		if got := p.flattener().flatten(json.RawMessage(`{"content":` + string(line) + `}`)); half(got.Text) || !got.Cut {
			t.Fatalf("I12 result: %q", got.Text)
		}
		if got := p.flattener().refusal(&jsonrpc.Error{Message: string(line)}); half(got.Text) {
			t.Fatalf("I12 refusal: %q", got.Text)
		}
		rt := &originRT{session: p.flattener()}
		if got := rt.words([]byte(strings.Repeat("x", 300-before) + secret)); half(got) {
			t.Fatalf("I12 HTTP refusal: %q", got)
		}
		e := newConn(p, task.Connector{ID: "x"}).fail(opOpen, errors.New(strings.Repeat("x", maxErrorText-before-20)+secret), false)
		if half(e.Error()) {
			t.Fatalf("I12 error: %q", e.Error())
		}
		tail := &stderrTail{redact: hide.Text, log: p.log}
		tail.drain(strings.NewReader(strings.Repeat("x", stderrLine-before) + secret + strings.Repeat("y", 2*stderrLine) + "\n"))
		if half(tail.text()) {
			t.Fatalf("I12 standard error: %q", tail.text()[stderrLine-100:])
		}
		tail = &stderrTail{redact: hide.Text, log: p.log}
		tail.drain(strings.NewReader("a\n" + strings.Repeat("x", 800-before) + secret + strings.Repeat("y", before) + "\n"))
		if w := tail.lastWords(); half(w) {
			t.Fatalf("I12 last words: %q", w)
		}
	}
}
