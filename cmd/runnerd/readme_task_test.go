package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"runnerd/internal/daemontest"
	"runnerd/task"
)

// told is a block of the README: the content of the file that the text before it
// names last, or commands.
type told struct{ file, text string }

var homeFile = regexp.MustCompile("`(~/[^`]+)`")

// blocks are the indented blocks of a section in order. A block that begins with
// `models:` and names no file is another way to write the file before it.
func blocks(t *testing.T, section string) (list []told) {
	t.Helper()
	_, text, found := strings.Cut(readme(t), "\n## "+section+"\n")
	if !found {
		t.Fatalf("README.md has no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	file, block, models := "", "", ""
	for line := range strings.Lines(text + "\nend\n") {
		switch code, indented := strings.CutPrefix(line, "    "); {
		case indented:
			block += code
		case strings.TrimSpace(line) == "" && block != "":
			block += "\n"
		default:
			if block = strings.Trim(block, "\n"); block != "" {
				if strings.HasPrefix(block, "models:") && file == "" {
					file = models
				} else if strings.HasPrefix(block, "models:") {
					models = file
				}
				list = append(list, told{file, block + "\n"})
				file, block = "", ""
			}
			if m := homeFile.FindStringSubmatch(line); m != nil && strings.HasSuffix(strings.TrimSpace(line), ":") {
				file = m[1]
			}
		}
	}
	return list
}

// reader follows the README in a home of its own. Only the hosts of models are
// others: the fake that listens on loopback.
type reader struct {
	t    *testing.T
	home string
	bin  string
	host string
	at   string // directory of the binary
}

func newReader(t *testing.T, host string) *reader {
	t.Helper()
	bin, err := breakableBinary()
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, home: t.TempDir(), bin: bin, host: host, at: t.TempDir()}
	daemontest.Must(t, os.Symlink(bin, filepath.Join(r.at, "runnerd")))
	return r
}

func (r *reader) path(name string) string { return strings.Replace(name, "~", r.home, 1) }

func (r *reader) write(b told) {
	r.t.Helper()
	text := regexp.MustCompile(`base_url: \S+?(/v1)?\n`).ReplaceAllString(b.text, "base_url: "+r.host+"$1\n")
	daemontest.Must(r.t, os.MkdirAll(filepath.Dir(r.path(b.file)), 0o755), os.WriteFile(r.path(b.file), []byte(text), 0o644))
}

// types has a shell take a line, as the page shows it.
func (r *reader) types(line, stdin string) (string, int) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "/bin/sh", "-c", line)
	cmd.Env = []string{"HOME=" + r.home, "PATH=" + r.at + ":" + os.Getenv("PATH"), "RUNNERD_TIMEZONE=Europe/Berlin"}
	cmd.Stdin = strings.NewReader(stdin)
	out, _ := cmd.CombinedOutput() // the code tells
	return string(out), cmd.ProcessState.ExitCode()
}

// follow does what a section says, block by block; skip leaves a block out.
func (r *reader) follow(section string, skip func(told) bool) {
	r.t.Helper()
	for _, b := range blocks(r.t, section) {
		if skip(b) {
			continue
		}
		if b.file != "" {
			r.write(b)
			continue
		}
		for line := range strings.Lines(b.text) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "make "): // the binary is there
			case strings.HasPrefix(line, "runnerd serve"):
				r.serves(line)
			default:
				out, code := r.types(line, "sk-of-the-test\n")
				if code != task.ExitOK {
					r.t.Errorf("%s: exit code %d\n%s", line, code, out)
				}
				if strings.HasPrefix(line, "runnerd check") && !strings.Contains(out, "0 problems, 0 warnings: ok") {
					r.t.Errorf("%s:\n%s", line, out)
				}
			}
		}
	}
}

// serves starts the daemon and ends it when it says that it is there.
func (r *reader) serves(line string) {
	r.t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "exec "+line)
	cmd.Env = []string{"HOME=" + r.home, "PATH=" + r.at + ":" + os.Getenv("PATH"), "RUNNERD_TIMEZONE=Europe/Berlin"}
	daemontest.Must(r.t, cmd.Start())
	daemontest.Until(r.t, "the daemon answers", func() bool {
		_, code := r.types("runnerd status --json | grep -q '\"running\": true'", "")
		return code == task.ExitOK
	})
	daemontest.Must(r.t, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
}

// assistant is a model host that does what the page's task asks for: it reads, warns
// and says so, in Ollama's words and in OpenAI's.
func assistant(t *testing.T) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	calls := []string{`{"path":"usage.txt"}`, `{"path":"warning.md","content":"sda1 is at 91 %"}`}
	names := []string{"mcp__files__read_file", "mcp__files__write_file"}
	step := func(r *http.Request) int {
		asked.Add(1)
		var body struct {
			Messages []struct{ Role string }
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		n, since := 0, 0
		for i, m := range body.Messages {
			if m.Role == "user" {
				since = i
			}
		}
		for _, m := range body.Messages[since:] {
			if m.Role == "assistant" {
				n++
			}
		}
		return n
	}
	const last = "I wrote the warning to warning.md: sda1 is at 91 %."
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/chat", func(w http.ResponseWriter, r *http.Request) {
		if n := step(r); n < len(calls) {
			fmt.Fprintf(w, `{"message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":%q,"arguments":%s}}]},"done":true,"done_reason":"stop","prompt_eval_count":900,"eval_count":20}`+"\n", names[n], calls[n])
			return
		}
		fmt.Fprintf(w, `{"message":{"role":"assistant","content":%q},"done":true,"done_reason":"stop","prompt_eval_count":900,"eval_count":20}`+"\n", last)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer sk-of-the-test" {
			t.Errorf("key: %q", got)
		}
		w.Header().Set("Content-Type", "application/json")
		const usage = `"usage":{"prompt_tokens":900,"completion_tokens":20}`
		if n := step(r); n < len(calls) {
			fmt.Fprintf(w, `{"choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","tool_calls":[{"id":"c%d","type":"function","function":{"name":%q,"arguments":%q}}]}}],%s}`, n, names[n], calls[n], usage)
			return
		}
		fmt.Fprintf(w, `{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":%q}}],%s}`, last, usage)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL, asked
}

// TestReadmeFirstTask follows the README word for word on the real binary, with each of
// the models that it shows, and then rehearses.
func TestReadmeFirstTask(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, provider string }{{"item 8 local", "ollama"}, {"item 8 key", "openai"}} {
		t.Run(c.name, func(t *testing.T) {
			url, asked := assistant(t)
			r := newReader(t, url)
			r.follow("A first real task in five minutes", func(b told) bool {
				return strings.HasPrefix(b.text, "models:") && !strings.Contains(b.text, "provider: "+c.provider) ||
					c.provider == "ollama" && strings.Contains(b.text, "credentials")
			})
			if n := asked.Load(); n != 3 {
				t.Errorf("the model was asked %d times, want 3", n)
			}
			warning := filepath.Join(r.home, "runnerd-reports", "warning.md")
			text, err := os.ReadFile(warning)
			if err != nil || !strings.Contains(string(text), "91 %") {
				t.Errorf("%s: %q, %v", warning, text, err)
			}
			daemontest.Must(t, os.Remove(warning))
			r.follow("Rehearsals", func(told) bool { return false })
			if text, err := os.ReadFile(warning); err != nil || !strings.Contains(string(text), "91 %") {
				t.Errorf("rehearsed: %q, %v", text, err)
			}
			if n := asked.Load(); n != 3 {
				t.Errorf("a rehearsal asked the model")
			}
		})
	}
}

// TestCheckNamesTheTaskThatCannotSucceed is friction line 1: the page's task as it was,
// with a line that no call can meet.
func TestCheckNamesTheTaskThatCannotSucceed(t *testing.T) {
	t.Parallel()
	r := newReader(t, "http://127.0.0.1:9")
	r.types("runnerd init", "")
	r.write(told{"~/.config/runnerd/tasks/disk.md", "---\nconnectors: [files]\nallow:\n  - tool: files/write_file\n    where: {path: {under: /srv/reports}, content: any}\n---\nWrite.\n"})
	if out, _ := r.types("runnerd check", ""); !strings.Contains(out, "/srv/reports") || !strings.Contains(out, "can be reached") || strings.Contains(out, "warnings: ok") {
		t.Errorf("check:\n%s", out)
	}
}
