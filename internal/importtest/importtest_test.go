package importtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "runnerd/"

// use is one import, or one call of another package's function as pkg.Name.
type use struct {
	what string
	at   token.Position
}

// source is what the table speaks about in one package. Test files are left out:
// a test may bring in whatever shows that the code works.
type source struct {
	imports, calls []use
}

func TestImports(t *testing.T) {
	sources, err := read(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(sources) < 5 {
		t.Fatalf("read %d packages, want the whole module", len(sources))
	}
	for pkg, src := range sources {
		for _, problem := range check(pkg, src) {
			t.Error(problem)
		}
	}
}

// read parses every file of the module, whatever its build tags are.
func read(root fs.FS) (map[string]source, error) {
	sources := map[string]source{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			if name != "." && (base == "node_modules" || base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		pkg := path.Dir(name)
		src := sources[pkg]
		err = src.add(name, text)
		sources[pkg] = src
		return err
	})
	return sources, err
}

// dotImport leads in an import whose names are used bare, in place of a call.
const dotImport = "dot import "

// add collects the imports and calls of one file.
func (s *source) add(name string, text []byte) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	local := map[string]string{} // name in this file to import path
	for _, spec := range file.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		s.imports = append(s.imports, use{target, files.Position(spec.Pos())})
		as := path.Base(target)
		if spec.Name != nil {
			as = spec.Name.Name
		}
		if as == "." {
			s.calls = append(s.calls, use{dotImport + target, files.Position(spec.Pos())})
		}
		local[as] = target
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if sel, ok := node.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && local[x.Name] != "" {
				s.calls = append(s.calls, use{local[x.Name] + "." + sel.Sel.Name, files.Position(sel.Pos())})
			}
		}
		return true
	})
	return nil
}

// check lists where a package breaks the table.
func check(pkg string, src source) []string {
	r, testSupport, ok := find(pkg)
	if !ok {
		return []string{fmt.Sprintf("%s: unknown package; add it to the table in internal/importtest with its one job and what it may import, or put the code where it belongs", pkg)}
	}
	var problems []string
	for _, u := range src.imports {
		if p := checkImport(pkg, r, testSupport, u.what); p != "" {
			problems = append(problems, fmt.Sprintf("%s: %s", u.at, p))
		}
	}
	for _, u := range src.calls {
		if p := checkCall(pkg, u.what); p != "" {
			problems = append(problems, fmt.Sprintf("%s: %s", u.at, p))
		}
	}
	return problems
}

// find returns the row of a package. Test support of a package, in a folder of
// it whose name ends in "test" (llm/llmtest), has that package's row.
func find(pkg string) (r row, testSupport, ok bool) {
	if r, ok = packages[pkg]; ok {
		return r, strings.HasPrefix(pkg, "internal/") && isTest(pkg), true
	}
	if isTest(pkg) {
		parent := path.Dir(pkg)
		if r, ok = packages[parent]; ok {
			r.may = append([]string{parent}, r.may...)
			return r, true, true
		}
	}
	return row{}, false, false
}

func isTest(pkg string) bool { return strings.HasSuffix(pkg, "test") }

func checkImport(pkg string, r row, testSupport bool, target string) string {
	own, isOwn := strings.CutPrefix(target, module)
	switch {
	case (target == "testing" || isOwn && isTest(own)) && !testSupport:
		return fmt.Sprintf("%s imports %s, which only tests may", pkg, target)
	case isOwn && !slices.Contains(r.may, everything) && !slices.Contains(r.may, own):
		return fmt.Sprintf("%s (%s) may not import %s; it may import: %s", pkg, r.job, target, strings.Join(r.may, " "))
	case pure[pkg] && slices.Contains(impureImports, target):
		return fmt.Sprintf("%s is pure and may not import %s; pass in what it needs", pkg, target)
	case !isOwn && strings.Contains(strings.SplitN(target, "/", 2)[0], ".") && !testSupport:
		return checkLibrary(pkg, target)
	}
	return ""
}

// checkLibrary judges an import of another module.
func checkLibrary(pkg, target string) string {
	for prefix := target; prefix != "."; prefix = path.Dir(prefix) {
		owners, ok := libraries[prefix]
		if !ok {
			continue
		}
		if pkg == "cmd/runnerd" || slices.Contains(owners, anyone) || slices.Contains(owners, pkg) {
			return ""
		}
		return fmt.Sprintf("%s may not import %s; only these may: cmd/runnerd %s", pkg, target, strings.Join(owners, " "))
	}
	return fmt.Sprintf("%s imports %s, an unknown library; say in docs/design.md why it is needed and in internal/importtest which packages may know it", pkg, target)
}

func checkCall(pkg, call string) string {
	switch {
	case strings.HasPrefix(call, dotImport):
		return fmt.Sprintf("%s imports %s with a dot, which hides what it calls", pkg, strings.TrimPrefix(call, dotImport))
	case slices.Contains(doors, call) && !strings.HasPrefix(pkg, "internal/") && !slices.Contains(doorkeepers, pkg) && exceptions[pkg][call] == "":
		return fmt.Sprintf("%s calls %s; files are written through confine and programs started through procgroup, unless internal/importtest lists the call with a reason", pkg, call)
	case pkg != "cmd/runnerd" && !isTest(pkg) && slices.Contains(environment, call):
		return fmt.Sprintf("%s calls %s; only cmd/runnerd reads the environment and passes values in", pkg, call)
	case pure[pkg] && slices.Contains(impureCalls, call):
		return fmt.Sprintf("%s is pure and may not call %s; pass the time in", pkg, call)
	}
	return ""
}

// TestCheck breaks the table on purpose.
func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		pkg, text string
		want      string // part of the one problem; empty: none
	}{
		{"task", `import "runnerd/policy"`, "task (the vocabulary) may not import runnerd/policy"},
		{"policy", `import "runnerd/task"`, ""},
		{"policy", `import "runnerd/taskpolicy"`, "may not import"},
		{"policy", `import "os"`, "is pure"},
		{"policy", `import "time"; var _ = time.Now()`, "is pure"},
		{"policy", `import clock "time"; var _ = clock.Since`, "is pure"},
		{"policy", `import "time"; var _ time.Time`, ""},
		{"scheduler", `import "runnerd/agentloop"`, "may not import"},
		{"scheduler", `import "time"; var _ = time.Now()`, ""},
		{"agentloop", `import "github.com/uptrace/bun/dialect/pgdialect"`, "may not import"},
		{"agentloop", `import "github.com/modelcontextprotocol/go-sdk/mcp"`, "may not import"},
		{"db", `import "github.com/uptrace/bun"`, ""},
		{"db", `import "runnerd/taskpolicy"`, "may not import"},
		{"config", `import "github.com/sethvargo/go-envconfig"`, "may not import"},
		{"config", `import "os"; var _ = os.Getenv("HOME")`, "reads the environment"},
		{"config", `import "example.com/new"`, "unknown library"},
		{"config", `import "golang.org/x/sync/errgroup"`, ""},
		{"cmd/runnerd", `import "runnerd/agentloop"; import "github.com/uptrace/bun"; import "os"; var _ = os.Environ()`, ""},
		{"cmd/runnerd", `import "testing"`, "which only tests may"},
		{"llm/openai", `import "runnerd/llm"`, ""},
		{"llm/openai", `import "runnerd/llm/llmtest"`, "which only tests may"},
		{"llm/llmtest", `import "runnerd/llm"; import "testing"; import "go.uber.org/goleak"`, ""},
		{"llm/llmtest", `import "runnerd/agentloop"`, "may not import"},
		{"builtin", `import "runnerd/policy"`, "may not import"},
		{"deliver", `import "os"; var _ = os.WriteFile`, "written through confine"},
		{"deliver", `import "os"; var f = os.OpenFile`, "written through confine"},
		{"deliver", `import sys "golang.org/x/sys/unix"; var _, _ = sys.Openat(0, "", 0, 0)`, "written through confine"},
		{"deliver", `import . "os"; var _ = WriteFile`, "with a dot"},
		{"agentloop", `import "os/exec"; var _ = exec.CommandContext`, "started through procgroup"},
		{"agentloop", `import "os/exec"; var _ = exec.Cmd{}`, "started through procgroup"},
		{"cmd/runnerd", `import "syscall"; var _ = syscall.ForkExec`, "started through procgroup"},
		{"cmd/runnerd", `import "os"; var _ = os.WriteFile`, "written through confine"},
		{"cmd/runnerd", `import "os"; var _ = os.MkdirTemp`, ""},
		{"confine", `import "os"; var _ = os.WriteFile`, ""},
		{"procgroup", `import "os/exec"; var _ = exec.Cmd{}`, ""},
		{"helpers", `import "fmt"`, "add it to the table"},
		{"internal/util", `import "fmt"`, "add it to the table"},
	} {
		t.Run(tc.pkg+" "+tc.text, func(t *testing.T) {
			var src source
			if err := src.add("x.go", []byte("package x; "+tc.text)); err != nil {
				t.Fatal(err)
			}
			got := check(tc.pkg, src)
			if tc.want == "" && len(got) != 0 {
				t.Errorf("check = %q, want none", got)
			}
			if tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)) {
				t.Errorf("check = %q, want one with %q", got, tc.want)
			}
		})
	}
}

// TestTable keeps the table itself right.
func TestTable(t *testing.T) {
	for pkg, r := range packages {
		if r.job == "" {
			t.Errorf("%s has no job", pkg)
		}
		for _, may := range r.may {
			if _, ok := packages[may]; !ok && may != everything {
				t.Errorf("%s may import %q, which has no row", pkg, may)
			}
		}
	}
	for pkg, calls := range exceptions {
		for call, reason := range calls {
			if _, ok := packages[pkg]; !ok || reason == "" || !slices.Contains(doors, call) {
				t.Errorf("the exception of %s for %s stands for nothing", pkg, call)
			}
		}
	}
	for library, owners := range libraries {
		for _, owner := range owners {
			if _, ok := packages[owner]; !ok && owner != anyone {
				t.Errorf("%s belongs to %q, which has no row", library, owner)
			}
		}
	}
}
