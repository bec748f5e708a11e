package main

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"runnerd/daemon"
	"runnerd/llm/scripted"
)

// The README's table of variables and the settings that are read are the same.
func TestReadmeNamesEveryVariable(t *testing.T) {
	_, table, _ := strings.Cut(readme(t), "\n## Environment\n")
	table, _, _ = strings.Cut(table, "\n## ")
	told := regexp.MustCompile(`RUNNERD_[A-Z_]+`).FindAllString(table, -1)
	var read []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[daemon.Settings]()) {
		name, _, _ := strings.Cut(f.Tag.Get("env"), ",")
		read = append(read, "RUNNERD_"+name)
	}
	slices.Sort(told)
	slices.Sort(read)
	if told = slices.Compact(told); !slices.Equal(told, read) {
		t.Errorf("README.md names\n%v, Settings\n%v", told, read)
	}
}

// Each command that the pages show is one that the command line takes.
func TestPagesShowVerbsThatExist(t *testing.T) {
	parser, err := kong.New(&cli{}, kong.Name("runnerd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"../../README.md", "../../docs/design.md", "../../docs/rough-edges.md", "../../docs/run-states.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?m)(?:`|^ {4}(?:sudo (?:-E )?)?)(?:RUNNERD_\\S+ )?runnerd ([a-z]+)((?: [a-z]+)?)(.*)$").FindAllStringSubmatch(string(text), -1) {
			i := slices.IndexFunc(parser.Model.Children, func(n *kong.Node) bool { return n.Name == m[1] })
			if i < 0 {
				t.Errorf("%s shows `runnerd %s`, which is no verb", page, m[1])
				continue
			}
			shown, _, _ := strings.Cut(m[3], "`")
			shown, _, _ = strings.Cut(shown, "#")
			for _, flag := range regexp.MustCompile(` --([a-z-]+)`).FindAllStringSubmatch(shown, -1) {
				if !hasFlag(parser.Model.Children[i], flag[1]) && flag[1] != "config" && flag[1] != "state" && flag[1] != "help" {
					t.Errorf("%s shows `runnerd %s … --%s`, which is no flag of it", page, m[1], flag[1])
				}
			}
		}
	}
}

// hasFlag tells whether a verb, or one below it, has the flag.
func hasFlag(n *kong.Node, name string) bool {
	return slices.ContainsFunc(n.Flags, func(f *kong.Flag) bool { return f.Name == name }) ||
		slices.ContainsFunc(n.Children, func(c *kong.Node) bool { return hasFlag(c, name) })
}

func readme(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestReadmeScript plays what the README shows of a script through its parser.
func TestReadmeScript(t *testing.T) {
	_, after, found := strings.Cut(readme(t), "\n    turns:\n")
	if !found {
		t.Fatal("the README shows no script")
	}
	var script strings.Builder
	script.WriteString("turns:\n")
	for line := range strings.Lines(after) {
		if !strings.HasPrefix(line, "    ") {
			break
		}
		script.WriteString(strings.TrimPrefix(line, "    "))
	}
	s, err := scripted.Parse("README.md", []byte(script.String()))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, script.String())
	}
	if len(s.Turns) != 4 {
		t.Errorf("%d turns, want 4", len(s.Turns))
	}
}
