package connector

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"runnerd/task"
)

// say is a server of the older protocol whose answer to tools/call is the line
// that its first argument spells, with ID for the request's id; its second, if
// any, is the answer to server/discover.
func say(args []string) int {
	return speak(func(method string, id json.RawMessage) any {
		line := ""
		switch {
		case method == "tools/list":
			return raw(`{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`)
		case method == "tools/call":
			line = args[0]
		case method == "server/discover" && len(args) > 1:
			line = args[1]
		default:
			return nil
		}
		fmt.Println(strings.ReplaceAll(line, "ID", string(id)))
		return nil
	})
}

// torrent writes the line that its argument spells 120,000 times, with N for the
// number, as its answer to tools/call, and reads nothing from then on.
func torrent(args []string) int {
	return speak(func(method string, id json.RawMessage) any {
		switch method {
		case "tools/list":
			return raw(`{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`)
		case "tools/call":
			out := bufio.NewWriter(os.Stdout)
			for n := range 120_000 {
				if _, err := out.WriteString(strings.ReplaceAll(args[0], "N", fmt.Sprint(n)) + "\n"); err != nil {
					syscall.Exit(1)
				}
			}
			_ = out.Flush()
			select {}
		}
		return nil
	})
}

func init() { rawModes["say"], rawModes["torrent"] = say, torrent }

// sayPool is the same server over each transport.
func sayPool(t *testing.T, over, line string) *Pool {
	if over == "stdio" {
		return testPool(t, nil, stdioSpec(t, "say", line))
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		answer := map[string]string{
			"initialize": `{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"hand","version":"0"}}}`,
			"tools/list": `{"jsonrpc":"2.0","id":ID,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}}`,
			"tools/call": line,
		}[m.Method]
		switch {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		case len(m.ID) == 0:
			w.WriteHeader(http.StatusAccepted)
			return
		case answer == "":
			answer = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"unknown method"}}`
		}
		answer = strings.ReplaceAll(answer, "ID", string(m.ID))
		if over == "events" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "id: 7\nevent: message\ndata: %s\n\n", answer)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(srv.Close)
	return webPool(t, task.Connector{URL: srv.URL}, nil)
}

// An answer that came is an answer, however odd: it is shown as far as it can be
// read, the call has an outcome and the session lives.
func TestOddAnswers(t *testing.T) {
	t.Parallel()
	result := func(s string) string { return `{"jsonrpc":"2.0","id":ID,"result":` + s + `}` }
	tests := []struct {
		name, line, want string
		isError          bool
	}{
		{"E2 unknown block", result(`{"content":[{"type":"video","data":"AAAA","mimeType":"video/mp4"},{"type":"text","text":"hello"}]}`), "[video, not shown]\nhello", false},
		{"E2 only an unknown block", result(`{"content":[{"type":"chart"}]}`), "[chart, not shown]", false},
		{"E2 a kind that would forge a line", result(`{"content":[{"type":"a\nb]\u001b[2J"}]}`), `[a b]\x1b[2J, not shown]`, false},
		{"E2 kind is no text", result(`{"content":[{"type":7}]}`), "[content of no known kind, not shown]", false},
		{"E2 no kind but text", result(`{"content":[{"text":"hello"}]}`), "hello", false},
		{"E2 blocks of a model", result(`{"content":[{"type":"tool_use","id":"1","name":"n","input":{}}]}`), "[tool_use, not shown]", false},
		{"E2 null block", result(`{"content":[null,{"type":"text","text":"hello"}]}`), "[content of no known kind, not shown]\nhello", false},
		{"E2 block is a string", result(`{"content":["hello"]}`), "hello", false},
		{"E2 content is a string", result(`{"content":"hello"}`), "hello", false},
		{"E2 content is one block", result(`{"content":{"type":"text","text":"hello"}}`), "hello", false},
		{"E2 content is null", result(`{"content":null}`), "", false},
		{"E2 no content", result(`{}`), "", false},
		{"E2 text is a number", result(`{"content":[{"type":"text","text":42}]}`), "42", false},
		{"E2 text is missing", result(`{"content":[{"type":"text"}]}`), "", false},
		{"E2 image that is no base64", result(`{"content":[{"type":"image","data":"not base64!","mimeType":"image/png"}]}`), "[image, image/png, 8 bytes, not shown]", false},
		{"E2 image without data", result(`{"content":[{"type":"image"}]}`), "[image, unknown type, 0 bytes, not shown]", false},
		{"E2 resource is a string", result(`{"content":[{"type":"resource","resource":"x"}]}`), "[resource without contents]", false},
		{"E2 resource with a blob that is none", result(`{"content":[{"type":"resource","resource":{"uri":"file:///b","blob":5}}]}`), "[resource file:///b, unknown type, 0 bytes, not shown]", false},
		{"E2 annotations and meta of odd types", result(`{"content":[{"type":"text","text":"hello","annotations":"none","_meta":[]}],"_meta":5}`), "hello", false},
		{"E2 link with a size in words", result(`{"content":[{"type":"resource_link","uri":"u","name":"n","size":"big"}]}`), "[link, not followed: u n]", false},
		{"E2 result is a string", result(`"hello"`), "hello", false},
		{"E2 result is a list", result(`[1,2]`), "[1,2]", false},
		{"E2 result is null", result(`null`), "[an answer without a result]", false},
		{"E2 isError in words", result(`{"content":[{"type":"text","text":"no"}],"isError":"true"}`), "no", true},
		{"E2 structured only", result(`{"structuredContent":{"a":1}}`), `{"a":1}`, false},
		{"E2 deep", result(`{"content":[{"type":"text","text":"hello"}],"structuredContent":` + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + `}`), "hello", false},
		{"asks for input", result(`{"resultType":"input_required","inputRequests":{}}`), "the tool asks for input from a person or a model, which an unattended run does not give", true},
		{"E2 id as text", `{"jsonrpc":"2.0","id":"ID","result":{"content":[{"type":"text","text":"hello"}]}}`, "hello", false},
		{"E2 id null", `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"broke"}}`, "the server refused the call: broke (code -32603)", true},
		{"E2 no id", `{"jsonrpc":"2.0","error":{"code":-32603,"message":"broke"}}`, "the server refused the call: broke (code -32603)", true},
		{"E2 error is text", `{"jsonrpc":"2.0","id":ID,"error":"broke"}`, "the server refused the call: broke (code -32603)", true},
		{"E2 code is text", `{"jsonrpc":"2.0","id":ID,"error":{"code":"E42","message":"broke"}}`, "the server refused the call: broke (code -32603)", true},
		{"E2 code is a fraction", `{"jsonrpc":"2.0","id":ID,"error":{"code":1.5,"message":"broke"}}`, "the server refused the call: broke (code -32603)", true},
		{"E2 message is an object", `{"jsonrpc":"2.0","id":ID,"error":{"code":1,"message":{"a":"b"}}}`, `the server refused the call: {"a":"b"} (code 1)`, true},
		{"E2 code of the library's own", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32005,"message":"broke"}}`, "the server refused the call: broke (code -32005)", true},
		{"E2 error and result null", `{"jsonrpc":"2.0","id":ID,"error":null,"result":{"content":[{"type":"text","text":"hello"}]}}`, "hello", false},
		{"E2 neither result nor error", `{"jsonrpc":"2.0","id":ID}`, "[an answer without a result]", false},
	}
	for _, over := range []string{"stdio", "json", "events"} {
		for _, tt := range tests {
			t.Run(over+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				p := sayPool(t, over, tt.line)
				for range 2 {
					got := mustCall(t, p, "echo", "")
					if got.Text != tt.want || got.IsError != tt.isError {
						t.Errorf("%+v, want %q, error %v", got, tt.want, tt.isError)
					}
				}
				if st := p.Status()[0]; !st.Up || st.Restarts != 0 {
					t.Errorf("status: %+v", st)
				}
			})
		}
	}
}

// An error of any form to server/discover means the older handshake.
func TestDiscoverRefused(t *testing.T) {
	t.Parallel()
	good := `{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}`
	for name, line := range map[string]string{
		"E3 id null":          `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request"}}`,
		"E3 no id":            `{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse error"}}`,
		"E3 invalid request":  `{"jsonrpc":"2.0","id":ID,"error":{"code":-32600,"message":"not initialized"}}`,
		"E3 error is text":    `{"jsonrpc":"2.0","id":ID,"error":"nope"}`,
		"E3 the SDK's own":    `{"jsonrpc":"2.0","id":ID,"error":{"code":-32004,"message":"x"}}`,
		"E3 version":          `{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"x","data":{"supported":["2025-06-18"]}}}`,
		"E3 empty result":     `{"jsonrpc":"2.0","id":ID,"result":{}}`,
		"E3 result is null":   `{"jsonrpc":"2.0","id":ID,"result":null}`,
		"E3 result of no use": `{"jsonrpc":"2.0","id":ID,"result":"what"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := testPool(t, nil, stdioSpec(t, "say", good, line))
			mustCall(t, p, "echo", "")
			if st := p.Status()[0]; st.Protocol != "2025-06-18" || st.Restarts != 0 {
				t.Errorf("status: %+v", st)
			}
		})
	}
}

// What becomes of a call whose HTTP exchange does not succeed: refused before it
// was carried out, which is certain, or unknown.
func TestHTTPEnds(t *testing.T) {
	t.Parallel()
	const lost = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`
	tests := []struct {
		name   string
		status int
		body   string
		sent   bool   // may have been carried out
		again  bool   // once on a new session, which works
		want   string // in the error or the result
	}{
		{"E1 400 no valid session, plain", 400, "No valid session ID", false, true, "done"},
		{"E1 400 no valid session, id null", 400, lost, false, true, "done"},
		{"E1 400 no valid session, id of its own", 400, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: Missing session ID"}}`, false, true, "done"},
		{"E1 400 session expired", 400, `{"error":"session expired"}`, false, true, "done"},
		{"E1 404", 404, "", false, true, "done"},
		{"E1 404 session", 404, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`, false, true, "done"},
		{"E1 410", 410, "session terminated", false, true, "done"},
		{"E1 401", 401, "token expired", false, true, "done"},
		{"E1 400 other", 400, "what is that", false, false, "HTTP 400"},
		{"E1 403", 403, "not you", false, false, "HTTP 403"},
		{"E1 405", 405, "", false, false, "HTTP 405"},
		{"E1 406", 406, "", false, false, "HTTP 406"},
		{"E1 413", 413, "", false, false, "HTTP 413"},
		{"E1 415", 415, "", false, false, "HTTP 415"},
		{"E1 429", 429, "slow down", false, false, "HTTP 429"},
		{"E1 431", 431, "", false, false, "HTTP 431"},
		{"E1 307 elsewhere", 307, "", false, false, "another origin"},
		{"E1 408 of a gateway", 408, "", true, false, "HTTP 408"},
		{"E1 409", 409, "", true, false, "HTTP 409"},
		{"E1 500", 500, "", true, false, "HTTP 500"},
		{"E1 502", 502, "session not found", true, false, "HTTP 502"},
		{"E1 503", 503, "", true, false, "HTTP 503"},
		{"E1 504", 504, "", true, false, "HTTP 504"},
		{"E1 302 as after a form", 302, "", true, false, "another origin"},
		{"E1 204", 204, "", true, false, ""},
		{"E1 200 page", 200, "<html>", true, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var calls, inits atomic.Int64
			h := handServer(t, false, func(method string) any {
				switch method {
				case "tools/list":
					return raw(`{"tools":[]}`)
				case "tools/call":
					return raw(`{"content":[{"type":"text","text":"done"}]}`)
				}
				return nil
			}).Config.Handler
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				if strings.Contains(string(body), `"initialize"`) {
					inits.Add(1)
				}
				if strings.Contains(string(body), "tools/call") && calls.Add(1) == 1 {
					w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
					w.Header().Set("Content-Type", "text/html")
					w.WriteHeader(tt.status)
					_, _ = io.WriteString(w, tt.body)
					return
				}
				h.ServeHTTP(w, r)
			}))
			t.Cleanup(srv.Close)
			p := webPool(t, task.Connector{URL: srv.URL}, func(o *Options) { o.Limits.Call = 5 * time.Second })
			if err := p.Dial(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
			res, err := p.Call(t.Context(), "x", "echo", textArg(""))
			var e *Error
			switch {
			case tt.again && (err != nil || res.Text != tt.want || calls.Load() != 2 || inits.Load() != 2):
				t.Errorf("%+v, %v, %d calls, %d handshakes", res, err, calls.Load(), inits.Load())
			case tt.again:
			case !errors.As(err, &e) || e.Sent() != tt.sent || !strings.Contains(e.Error(), tt.want):
				t.Errorf("%+v, %v, want sent %v and %q", res, err, tt.sent, tt.want)
			case tt.sent && calls.Load() != 1:
				t.Errorf("sent %d times", calls.Load())
			}
			if got := mustCall(t, p, "echo", ""); got.Text != "done" {
				t.Errorf("the next call: %+v", got)
			}
		})
	}
}

// A JSON-RPC error is an answer whatever the status says.
func TestHTTPErrorBody(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 400, 422, 500} {
		h := handServer(t, false, func(method string) any {
			if method == "tools/list" {
				return raw(`{"tools":[]}`)
			}
			return nil
		}).Config.Handler
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			if strings.Contains(string(body), "tools/call") {
				var m struct{ ID json.RawMessage }
				_ = json.Unmarshal(body, &m)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such city"}}`, m.ID)
				return
			}
			h.ServeHTTP(w, r)
		}))
		t.Cleanup(srv.Close)
		p := webPool(t, task.Connector{URL: srv.URL}, nil)
		if got := mustCall(t, p, "echo", ""); !got.IsError || !strings.Contains(got.Text, "no such city (code -32602)") {
			t.Errorf("HTTP %d: %+v", status, got)
		}
	}
}

// growth measures what f leaves and what it needs: goroutines at their most and
// bytes allocated in all.
func growth(f func()) (goroutines int, mib uint64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	done, most := make(chan struct{}), make(chan int)
	go func() {
		peak := 0
		for {
			select {
			case <-done:
				most <- peak
				return
			default:
				peak = max(peak, runtime.NumGoroutine())
				runtime.Gosched()
			}
		}
	}()
	f()
	close(done)
	goroutines = <-most
	runtime.ReadMemStats(&after)
	return goroutines, (after.Sys - before.Sys) >> 20
}

// A server that sends by itself what nobody asked for, without end and without
// reading, costs the daemon nothing and loses its session.
func TestFloods(t *testing.T) {
	for name, line := range map[string]string{
		"I4 pings":            `{"jsonrpc":"2.0","id":N,"method":"ping"}`,
		"I4 same id":          `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		"I4 unknown requests": `{"jsonrpc":"2.0","id":N,"method":"sampling/createMessage","params":{}}`,
		"I4 progress":         `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":N}}`,
		"I4 log":              `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"xxxxxxxxxxxxxxxxxxxxxxxx"}}`,
		"I4 lists":            `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
		"I4 answers":          `{"jsonrpc":"2.0","id":9999,"result":{}}`,
		"I4 errors":           `{"jsonrpc":"2.0","id":9999,"error":{"code":1,"message":"x"}}`,
		"I4 batches":          `[{"jsonrpc":"2.0","id":N,"method":"ping"},{"jsonrpc":"2.0","id":"N","method":"ping"}]`,
		"I4 noise":            `listening on N`,
	} {
		t.Run("stdio/"+name, func(t *testing.T) { checkFlood(t, testPool(t, hasty, stdioSpec(t, "torrent", line))) })
		if name != "I4 batches" && name != "I4 noise" {
			t.Run("http/"+name, func(t *testing.T) { checkFlood(t, floodWeb(t, line)) })
		}
	}
}

func hasty(o *Options) {
	o.Logger = nil
	o.Limits.Call, o.Limits.Reply = 2*time.Second, 300*time.Millisecond
}

// floodWeb floods over the stream of an answer and takes no reply.
func floodWeb(t *testing.T, line string) *Pool {
	h := handServer(t, false, func(method string) any {
		if method == "tools/list" {
			return raw(`{"tools":[]}`)
		}
		return nil
	}).Config.Handler
	stop := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		switch {
		case strings.Contains(string(body), "tools/call"):
			w.Header().Set("Content-Type", "text/event-stream")
			for n := range 120_000 {
				if _, err := fmt.Fprintf(w, "data: %s\n\n", strings.ReplaceAll(line, "N", fmt.Sprint(n))); err != nil {
					return
				}
			}
			<-r.Context().Done()
		case strings.Contains(string(body), `"result"`) || strings.Contains(string(body), `"error"`):
			select {
			case <-stop:
			case <-r.Context().Done():
			}
		default:
			h.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { close(stop); srv.Close() })
	return webPool(t, task.Connector{URL: srv.URL}, hasty)
}

func checkFlood(t *testing.T, p *Pool) {
	t.Helper()
	if err := p.Dial(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	var err error
	goroutines, mib := growth(func() { _, err = p.Call(t.Context(), "x", "echo", textArg("")) })
	var e *Error
	if !errors.As(err, &e) || !e.Sent() {
		t.Errorf("error is %v", err)
	}
	if goroutines > 200 || mib > 32 {
		t.Errorf("%d goroutines and %d MiB", goroutines, mib)
	}
}

// A server may ask and be answered as long as it reads.
func TestPingsAreAnswered(t *testing.T) {
	t.Parallel()
	p := testPool(t, nil, stdioSpec(t, "curious"))
	for range 3 {
		if got := mustCall(t, p, "echo", ""); got.Text != "1000 answers, 500 of them errors" {
			t.Errorf("%+v", got)
		}
	}
}

// An id without end is no id.
func TestGiantID(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 100_000) + `","method":"ping"}` + "\n" + `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"hello"}]}}`,
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 100_000) + `","result":{}}` + "\n" + `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"hello"}]}}`,
	} {
		p := testPool(t, nil, stdioSpec(t, "say", line))
		if got := mustCall(t, p, "echo", ""); got.Text != "hello" {
			t.Errorf("%+v", got)
		}
	}
}

// curious asks a thousand times during a call and waits for each answer.
func curious([]string) int {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		_ = json.Unmarshal(in.Bytes(), &m)
		switch {
		case len(m.ID) == 0:
		case m.Method == "initialize":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"hand","version":"0"}}}`+"\n", m.ID)
		case m.Method == "tools/list":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}}`+"\n", m.ID)
		case m.Method == "tools/call":
			answers, errs := 0, 0
			for i := range 500 {
				fmt.Printf(`{"jsonrpc":"2.0","id":"p%d","method":"ping"}`+"\n", i)
				fmt.Printf(`{"jsonrpc":"2.0","id":"r%d","method":"roots/list"}`+"\n", i)
				for range 2 {
					in.Scan()
					answers++
					if strings.Contains(in.Text(), "error") {
						errs++
					}
				}
			}
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%d answers, %d of them errors"}]}}`+"\n", m.ID, answers, errs)
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown method"}}`+"\n", m.ID)
		}
	}
	return 0
}

// list is a server whose answer to tools/list is the line that its argument
// spells.
func list(args []string) int {
	return speak(func(method string, id json.RawMessage) any {
		if method == "tools/list" {
			fmt.Println(strings.ReplaceAll(args[0], "ID", string(id)))
		}
		return nil
	})
}

func init() { rawModes["curious"], rawModes["list"] = curious, list }
