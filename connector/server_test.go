package connector

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const serverVerb = "test-server"

// testServer is a stdio MCP server; the first argument says how it behaves.
func testServer(args []string) int {
	mode, rest := args[0], args[1:]
	if f := rawModes[mode]; f != nil {
		return f(rest)
	}
	return goodServer(mode, rest)
}

type textArgs struct {
	Text string `json:"text"`
}

// goodServer is a server of the official SDK with tools that tests need.
func goodServer(mode string, args []string) int {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1.2.3"}, nil)
	add := func(name string, f func(ctx context.Context, in textArgs) (string, error)) {
		mcp.AddTool(s, &mcp.Tool{Name: name, Description: name}, func(ctx context.Context, _ *mcp.CallToolRequest, in textArgs) (*mcp.CallToolResult, any, error) {
			out, err := f(ctx, in)
			if err != nil {
				return nil, nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: out}}}, nil, nil
		})
	}
	add("echo", func(_ context.Context, in textArgs) (string, error) { return in.Text, nil })
	add("fail", func(context.Context, textArgs) (string, error) { return "", fmt.Errorf("it did not work") })
	add("pid", func(context.Context, textArgs) (string, error) { return fmt.Sprint(os.Getpid()), nil })
	add("env", func(context.Context, textArgs) (string, error) { return strings.Join(os.Environ(), "\n"), nil })
	add("cwd", func(context.Context, textArgs) (string, error) { return os.Getwd() })
	add("read", func(_ context.Context, in textArgs) (string, error) {
		data, err := os.ReadFile(in.Text)
		return string(data), err
	})
	add("write", func(_ context.Context, in textArgs) (string, error) {
		return "written", os.WriteFile(in.Text, []byte("x"), 0o600)
	})
	add("connect", func(_ context.Context, in textArgs) (string, error) {
		c, err := net.Dial("unix", in.Text)
		if err != nil {
			return "", err
		}
		return "connected", c.Close()
	})
	add("kill", func(_ context.Context, in textArgs) (string, error) {
		var pid int
		_, _ = fmt.Sscan(in.Text, &pid)
		return "killed", syscall.Kill(pid, syscall.SIGKILL)
	})
	add("ppid", func(context.Context, textArgs) (string, error) { return fmt.Sprint(os.Getppid()), nil })
	add("die", func(context.Context, textArgs) (string, error) {
		fmt.Fprintln(os.Stderr, "panic: something broke")
		syscall.Exit(3)
		return "", nil
	})
	add("hang", func(ctx context.Context, _ textArgs) (string, error) {
		<-ctx.Done()
		fmt.Fprintln(os.Stderr, "call was cancelled")
		return "", ctx.Err()
	})
	add("big", func(_ context.Context, in textArgs) (string, error) {
		var n int
		_, _ = fmt.Sscan(in.Text, &n)
		return strings.Repeat("x", n), nil
	})
	add("grow", func(context.Context, textArgs) (string, error) {
		add("grown", func(context.Context, textArgs) (string, error) { return "", nil })
		return "grown", nil
	})
	add("family", func(context.Context, textArgs) (string, error) { return family() })
	switch mode {
	case "stubborn": // ignores the end of its input and TERM
		signal.Ignore(syscall.SIGTERM)
		if err := s.Run(context.Background(), &mcp.IOTransport{Reader: io.NopCloser(neverEOF{os.Stdin}), Writer: os.Stdout}); err != nil {
			return 1
		}
	case "family":
		if _, err := family(); err != nil {
			return 1
		}
	case "slow":
		time.Sleep(discoverDeadline + 200*time.Millisecond)
	case "noisy":
		for i := range 3 {
			fmt.Printf("starting up, step %d\n\n{\"level\":\"info\"}\n", i)
		}
	case "flood":
		fmt.Fprint(os.Stderr, strings.Repeat(strings.Repeat("y", 1000)+"\n", 4_000))
	case "secret":
		fmt.Fprintln(os.Stderr, "token is hunter2hunter2")
	}
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil && err != io.EOF {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

type neverEOF struct{ io.Reader }

func (n neverEOF) Read(p []byte) (int, error) {
	k, err := n.Reader.Read(p)
	if err == io.EOF {
		select {}
	}
	return k, err
}

// family starts a grandchild that left the session and ignores TERM, as does its
// own child, whose parent is gone; it answers once all are there.
func family() (string, error) {
	cmd := exec.Command("sh", "-c", `trap "" TERM HUP; (trap "" TERM HUP; setsid sleep 1000 >/dev/null 2>&1 </dev/null & ) ; setsid sh -c 'trap "" TERM HUP; echo ready; exec sleep 1000' </dev/null 2>/dev/null &`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	return bufio.NewReader(out).ReadString('\n')
}

// rawModes are servers that speak the protocol by hand, or not at all.
var rawModes = map[string]func([]string) int{
	"exit":     func([]string) int { fmt.Fprintln(os.Stderr, "Error: no configuration"); return 7 },
	"mute":     func([]string) int { _, _ = io.Copy(io.Discard, os.Stdin); return 0 },
	"deaf":     func([]string) int { select {} },
	"hugeline": func([]string) int { _, _ = io.Copy(os.Stdout, zeroes{}); return 0 },
	"nolist":   func([]string) int { return speak(func(m string, _ json.RawMessage) any { return nil }) },
	"legacy": func([]string) int { // ends at what it does not know
		return speak(func(m string, _ json.RawMessage) any {
			switch m {
			case "server/discover":
				syscall.Exit(1)
			case "tools/list":
				return raw(`{"tools":[{"name":"old","inputSchema":{"type":"object"}}]}`)
			}
			return nil
		})
	},
	"silent-discover": func([]string) int { // leaves unanswered what it does not know
		return speak(func(m string, _ json.RawMessage) any {
			if m == "tools/list" {
				return raw(`{"tools":[{"name":"old","inputSchema":{"type":"object"}}]}`)
			}
			return nil
		})
	},
	"pages": func([]string) int {
		n := 0
		return speak(func(m string, _ json.RawMessage) any {
			if m == "tools/list" {
				n++
				return raw(fmt.Sprintf(`{"tools":[{"name":"t%d","inputSchema":{"type":"object"}}],"nextCursor":"c%d"}`, n, n))
			}
			return nil
		})
	},
	"progress": func([]string) int { // progress for ever, never an answer
		return speak(func(m string, id json.RawMessage) any {
			switch m {
			case "tools/list":
				return raw(`{"tools":[{"name":"slow","inputSchema":{"type":"object"}}]}`)
			case "tools/call":
				go func() {
					for i := 0; ; i++ {
						fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}`+"\n", i)
						time.Sleep(10 * time.Millisecond)
					}
				}()
			}
			return nil
		})
	},
	"storm": func([]string) int {
		return speak(func(m string, _ json.RawMessage) any {
			if m == "tools/list" {
				for range 200 {
					fmt.Println(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				}
				return raw(`{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`)
			}
			return nil
		})
	},
	"shameless": func([]string) int { // asks the client for everything
		return speak(func(m string, id json.RawMessage) any {
			switch m {
			case "tools/list":
				return raw(`{"tools":[{"name":"ask","inputSchema":{"type":"object"}}]}`)
			case "tools/call":
				for i, method := range []string{"sampling/createMessage", "elicitation/create", "roots/list"} {
					fmt.Printf(`{"jsonrpc":"2.0","id":"q%d","method":%q,"params":{"messages":[],"maxTokens":1,"message":"?","requestedSchema":{"type":"object","properties":{}}}}`+"\n", i, method)
				}
				go func() {
					data, _ := json.Marshal(strings.Join(heardAnswers(3), "\n"))
					fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`+"\n", id, data)
				}()
			}
			return nil
		})
	},
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'z'
	}
	return len(p), nil
}

type raw = json.RawMessage

var (
	heardMu chanMutex = make(chan struct{}, 1)
	heard   []string
)

type chanMutex chan struct{}

func (m chanMutex) Lock()   { m <- struct{}{} }
func (m chanMutex) Unlock() { <-m }

// heardAnswers is all that was heard, once n of it answer what the server asked.
func heardAnswers(n int) []string {
	for {
		heardMu.Lock()
		all := slices.Clone(heard)
		heardMu.Unlock()
		answers := 0
		for _, line := range all {
			if strings.Contains(line, `"id":"q`) {
				answers++
			}
		}
		if answers >= n {
			return all
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// speak is a server of the older protocol by hand; answer says what becomes of
// each request but initialize, nil being silence.
func speak(answer func(method string, id json.RawMessage) any) int {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 32<<20)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(in.Bytes(), &m) != nil {
			continue
		}
		heardMu.Lock()
		heard = append(heard, in.Text())
		heardMu.Unlock()
		var res any
		if m.Method == "initialize" {
			res = raw(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"hand","version":"0"}}`)
		} else if res = answer(m.Method, m.ID); res == nil {
			if m.Method == "server/discover" && os.Args[2] != "silent-discover" {
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown method"}}`+"\n", m.ID)
			}
			continue
		}
		data, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": res})
		fmt.Printf("%s\n", data)
	}
	return 0
}
