package task

import (
	"encoding/json"
	"testing"
)

func TestDefinitionHashSeesEveryField(t *testing.T) {
	yes, no := true, false
	base := Tool{Name: "n", Title: "t", Description: "d", InputSchema: json.RawMessage(`{"type":"object"}`), OutputSchema: json.RawMessage(`{}`), Annotations: Annotations{ReadOnly: &no}}
	changes := map[string]func(*Tool){
		"name":          func(t *Tool) { t.Name = "m" },
		"title":         func(t *Tool) { t.Title = "" },
		"description":   func(t *Tool) { t.Description += " " },
		"input schema":  func(t *Tool) { t.InputSchema = json.RawMessage(`{"type":"array"}`) },
		"no schema":     func(t *Tool) { t.InputSchema = nil },
		"broken schema": func(t *Tool) { t.InputSchema = json.RawMessage(`{`) },
		"output schema": func(t *Tool) { t.OutputSchema = nil },
		"hint":          func(t *Tool) { t.Annotations.ReadOnly = &yes },
		"hint absent":   func(t *Tool) { t.Annotations.ReadOnly = nil },
	}
	seen := map[string]string{base.DefinitionHash(): "unchanged"}
	for name, change := range changes {
		tool := base
		change(&tool)
		if other, ok := seen[tool.DefinitionHash()]; ok {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[tool.DefinitionHash()] = name
	}
	spaced := base
	spaced.InputSchema = json.RawMessage(`{ "type" : "object" }`)
	if spaced.DefinitionHash() != base.DefinitionHash() {
		t.Error("white space in a schema changes the hash")
	}
}

func TestCost(t *testing.T) {
	cache := 0.03
	p := Price{Input: 0.25, Output: 2, CacheRead: &cache}
	u := Usage{Input: 1_000_000, Output: 100_000, CacheRead: 400_000}
	if got, want := p.Cost(u), MoneyOf(0.6*0.25+0.4*0.03+0.1*2); got != want {
		t.Errorf("cost %d, want %d", got, want)
	}
	if (Usage{}).Add(Usage{Input: 1}).Cost != nil {
		t.Error("an unknown price became free")
	}
}
