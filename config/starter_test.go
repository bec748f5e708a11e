package config

import (
	"encoding/json"
	"testing"

	"runnerd/policy"
	"runnerd/task"
)

func TestStarterLoads(t *testing.T) {
	d := newDir(t, Starter("/srv/reports"))
	s := load(t, d.loader())
	if len(s.Problems)+len(s.Warnings) > 0 {
		t.Fatalf("problems %q, warnings %q", texts(s.Problems), texts(s.Warnings))
	}
	hello, ok := s.Tasks["hello"]
	if !ok || hello.Task.Project != "home" || hello.Task.Instructions == "" {
		t.Fatalf("hello = %+v", hello)
	}
	if m := s.Models["default"]; m.Provider != "scripted" || m.Script != d.path+"/scripts/hello.yaml" {
		t.Errorf("default model = %+v", m)
	}
	if got := s.ConnectorIDs(); len(got) != 2 {
		t.Errorf("connectors = %v", got)
	}
	for _, rel := range []string{"runnerd.yaml", "models.yaml", "connectors.yaml", "projects.yaml", "tasks/hello.md"} {
		if s.Accepted[rel].SHA256 == "" {
			t.Errorf("%s is not accepted", rel)
		}
	}
}

func TestSchemas(t *testing.T) {
	for _, name := range Kinds() {
		text, err := Schema(name)
		if err != nil {
			t.Fatal(err)
		}
		var s struct {
			Schema     string `json:"$schema"`
			Title      string
			Properties map[string]struct {
				Title, Description string
				Type               any
			}
		}
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		if s.Schema == "" || s.Title == "" || len(s.Properties) == 0 {
			t.Errorf("%s: no $schema, title or properties", name)
		}
		for key, p := range s.Properties {
			if p.Title == "" || p.Description == "" || p.Type == nil {
				t.Errorf("%s.%s: title %q, description %q, type %v", name, key, p.Title, p.Description, p.Type)
			}
		}
	}
	if _, err := Schema("nope"); err == nil {
		t.Error("schema of an unknown kind")
	}
}

func TestDefaultsOfDesign(t *testing.T) {
	d := newDir(t, base(nil))
	s := load(t, d.loader(func(o *Options) { o.Zone = "Europe/Berlin" }))
	if len(s.Problems) > 0 {
		t.Fatal(texts(s.Problems))
	}
	f := s.Tasks["good"]
	want := task.Task{
		ID: "good", File: "tasks/good.md", Enabled: true, Model: "default", Prompt: "Do it.",
		Schedule: task.Schedule{Specs: []string{"@daily"}, Zone: "Europe/Berlin"},
		Session:  task.SessionKeep, CatchUp: task.CatchUpOnce, CatchUpWindow: 24 * hour, Overlap: task.OverlapSkip,
		Retry: task.Retry{Attempts: 2, Backoff: hour / 60},
	}
	got, _ := json.Marshal(f.Task)
	exp, _ := json.Marshal(want)
	if string(got) != string(exp) {
		t.Errorf("task\n got %s\nwant %s", got, exp)
	}
	p := f.Policy
	if p.Connectors.Declared() || p.Tools.Declared() || p.Allow.Declared() || p.Deny.Declared() {
		t.Error("something absent is declared")
	}
	if *p.OnAsk != policy.OnAskDeny || *p.ApprovalTTL != 24*hour || p.AcceptRisk != nil {
		t.Errorf("on_ask %v, approval_ttl %v, accept_risk %v", *p.OnAsk, *p.ApprovalTTL, p.AcceptRisk)
	}
	l := p.Limits
	if *l.Steps != 25 || *l.ToolCalls != 50 || *l.Tokens != 500_000 || *l.Wall != hour/4 || l.Cost != nil || l.CostPerDay != nil {
		t.Errorf("limits = %+v", l)
	}
}

const hour = 3600e9
