package connector

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runnerd/internal/npmtest"
	"runnerd/procgroup"
	"runnerd/task"
)

// npmPool is a pool with one of the servers that somebody else wrote.
func npmPool(t *testing.T, program string, args ...string) *Pool {
	t.Helper()
	bin, err := filepath.EvalSymlinks(npmtest.Bin(t, program))
	if err != nil {
		t.Fatal(err)
	}
	return testPool(t, func(o *Options) { o.Protected = []string{o.StateDir} },
		task.Connector{ID: "x", Command: "node", Args: append([]string{bin}, args...)})
}

func toolNamed(t *testing.T, p *Pool, name string) task.Tool {
	t.Helper()
	tools, err := p.Tools(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		if tool.Name == name {
			return tool
		}
	}
	t.Fatalf("no tool %s in %d", name, len(tools))
	return task.Tool{}
}

func callJSON(t *testing.T, p *Pool, tool, args string) task.ToolResult {
	t.Helper()
	res, err := p.Call(t.Context(), "x", tool, json.RawMessage(args))
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return res
}

func TestNPMEverything(t *testing.T) {
	t.Parallel()
	p := npmPool(t, npmtest.Everything)
	if got := callJSON(t, p, "echo", `{"message":"hallo"}`); !strings.Contains(got.Text, "hallo") {
		t.Errorf("echo: %+v", got)
	}
	if got := callJSON(t, p, "get-tiny-image", `{}`); !strings.Contains(got.Text, "[image, image/png, ") {
		t.Errorf("image: %+v", got)
	}
	got := callJSON(t, p, "get-env", `{}`)
	var env map[string]string
	if err := json.Unmarshal([]byte(got.Text), &env); err != nil {
		t.Fatalf("get-env: %v in %s", err, got.Text)
	}
	for k := range env {
		switch k {
		case "PATH", "LANG", "HOME", "npm_config_update_notifier", "npm_config_cache", "XDG_CACHE_HOME", "TMPDIR", procgroup.MarkVar:
		default:
			t.Errorf("%s is in its environment", k)
		}
	}
	if got := callJSON(t, p, "echo", `{"message":5}`); !got.IsError {
		t.Errorf("wrong type: %+v", got)
	}
}

func TestNPMFilesystem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "note"), []byte("written here"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := npmPool(t, npmtest.Filesystem, dir)
	read, write, mkdir := toolNamed(t, p, "read_text_file"), toolNamed(t, p, "write_file"), toolNamed(t, p, "create_directory")
	if r := read.Annotations.ReadOnly; r == nil || !*r {
		t.Errorf("read_text_file: %+v", read.Annotations)
	}
	if r, d := write.Annotations.ReadOnly, write.Annotations.Destructive; r == nil || *r || d == nil || !*d {
		t.Errorf("write_file: %+v", write.Annotations)
	}
	if r := mkdir.Annotations.ReadOnly; r == nil || *r {
		t.Errorf("create_directory: %+v", mkdir.Annotations)
	}
	path, _ := json.Marshal(filepath.Join(dir, "note"))
	if got := callJSON(t, p, "read_text_file", `{"path":`+string(path)+`}`); got.Text != "written here" {
		t.Errorf("read: %+v", got)
	}
	if got := callJSON(t, p, "read_text_file", `{"path":"/etc/passwd"}`); !got.IsError {
		t.Errorf("outside: %+v", got)
	}
}

func TestNPMMemory(t *testing.T) {
	t.Parallel()
	bin, err := filepath.EvalSymlinks(npmtest.Bin(t, npmtest.Memory))
	if err != nil {
		t.Fatal(err)
	}
	spec := task.Connector{ID: "x", Command: "node", Args: []string{bin}, Env: map[string]string{}}
	p := testPool(t, func(o *Options) {
		o.Protected = []string{o.StateDir}
		spec.Env["MEMORY_FILE_PATH"] = filepath.Join(o.StateDir, "connectors", "x", "graph.json")
	}, spec)
	callJSON(t, p, "create_entities", `{"entities":[{"name":"Ada","entityType":"person","observations":["likes tea"]}]}`)
	if got := callJSON(t, p, "search_nodes", `{"query":"tea"}`); !strings.Contains(got.Text, "Ada") {
		t.Errorf("search: %+v", got)
	}
	if _, err := os.Stat(spec.Env["MEMORY_FILE_PATH"]); err != nil {
		t.Errorf("its file: %v", err)
	}
}

func TestNPMThinking(t *testing.T) {
	t.Parallel()
	p := npmPool(t, npmtest.Thinking)
	for range 300 {
		got := callJSON(t, p, "sequentialthinking", `{"thought":"hm","nextThoughtNeeded":true,"thoughtNumber":1,"totalThoughts":2}`)
		if got.IsError {
			t.Fatalf("%+v", got)
		}
	}
	if n := len(p.Status()[0].Stderr); n > stderrBytes {
		t.Errorf("%d bytes of standard error kept", n)
	}
}
