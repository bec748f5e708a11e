package builtin

import (
	"context"
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/task"
)

// touches calls a tool and returns what it reports to have read and changed.
func touches(t *testing.T, s *session, tool string, in args) task.Touched {
	t.Helper()
	res, err := s.cs.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: in})
	must(t, err)
	data, err := json.Marshal(res.Meta[task.TouchedMeta])
	must(t, err)
	var got task.Touched
	must(t, json.Unmarshal(data, &got))
	slices.Sort(got.Read)
	return got
}

// I19: the servers report each entry that a call read or changed, by its path
// without links.
func TestTouchedFiles(t *testing.T) {
	dir := tree(t, map[string]string{"a/x.md": "needle", "a/y.md": "hay", "in": "-> a", "z": "needle"})
	real, err := filepath.EvalSymlinks(dir)
	must(t, err)
	at := func(names ...string) (list []string) {
		for _, n := range names {
			list = append(list, filepath.Join(real, n))
		}
		return list
	}
	s := connect(t, Files, "--root", dir)
	for _, c := range []struct {
		tool string
		in   args
		want task.Touched
	}{
		{"read_file", args{"path": "in/x.md"}, task.Touched{Read: []string{real + "/a/x.md", real + "/a/x.md#"}}},
		{"read_file", args{"path": "in/x.md", "offset": -1}, task.Touched{Read: []string{real + "/a/x.md", real + "/a/x.md#"}}},
		{"read_file", args{"path": "gone"}, task.Touched{}},
		{"list_directory", args{"path": "in"}, task.Touched{Read: at("a/x.md", "a/y.md")}},
		{"stat_file", args{"path": "in"}, task.Touched{Read: at("a", "in")}},
		{"search_files", args{"content": "needle"}, task.Touched{Read: []string{real + "/a/x.md", real + "/a/x.md#", real + "/z", real + "/z#"}}},
		{"search_files", args{"glob": "y.*"}, task.Touched{Read: at("a/y.md")}},
		{"write_file", args{"path": "in/x.md", "content": "c"}, task.Touched{Wrote: at("a/x.md")}},
		{"write_file", args{"path": "n/m/f", "content": "c"}, task.Touched{Wrote: at("n/m", "n", "n/m/f")}},
		{"write_file", args{"path": "n/m/f", "content": "c", "mode": "create"}, task.Touched{}},
		{"append_file", args{"path": "in/x.md", "content": "c"}, task.Touched{Added: at("a/x.md")}},
		{"make_directory", args{"path": "n/o"}, task.Touched{Wrote: at("n/o")}},
		{"move_file", args{"path": "in/x.md", "to": "p/x.md"}, task.Touched{Wrote: at("p"), Moved: []task.Move{{From: real + "/a/x.md", To: real + "/p/x.md"}}}},
		{"delete_file", args{"path": "in/y.md"}, task.Touched{Gone: at("a/y.md")}},
	} {
		if got := touches(t, s, c.tool, c.in); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %v: %+v, want %+v", c.tool, c.in, got, c.want)
		}
	}
}

func TestTouchedNotes(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	file := filepath.Join(dir, "memory.jsonl")
	s := connect(t, Memory, "--file", file)
	for _, c := range []struct {
		tool string
		in   args
		want task.Touched
	}{
		{"remember", args{"key": " a ", "text": "one"}, task.Touched{Wrote: []string{file + "#a"}, Added: []string{file + "#"}}},
		{"remember", args{"key": "b", "text": "two"}, task.Touched{Wrote: []string{file + "#b"}, Added: []string{file + "#"}}},
		{"recall", args{"key": "a"}, task.Touched{Read: []string{file, file + "#a"}}},
		{"recall", args{}, task.Touched{Read: []string{file, file + "#a", file + "#b"}}},
		{"recall", args{"limit": 1}, task.Touched{Read: []string{file, file + "#b"}}},
		{"search", args{"query": "one"}, task.Touched{Read: []string{file, file + "#a"}}},
		{"recall", args{"key": "zzz"}, task.Touched{}},
		{"forget", args{"key": "a"}, task.Touched{Gone: []string{file + "#a"}}},
	} {
		if got := touches(t, s, c.tool, c.in); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %v: %+v, want %+v", c.tool, c.in, got, c.want)
		}
	}
}
