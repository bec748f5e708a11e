package main

import (
	"os"
	"strings"
	"testing"

	"runnerd/llm/scripted"
)

// TestReadmeScript plays what the README shows of a script through its parser.
func TestReadmeScript(t *testing.T) {
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(data), "\n    turns:\n")
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
