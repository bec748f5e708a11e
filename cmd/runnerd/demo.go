package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"runnerd/daemon"
	"runnerd/db"
	"runnerd/task"
	"runnerd/text"
)

type demoCmd struct {
	Keep  bool   `help:"Leave the daemon running at the end, until Ctrl-C."`
	Model string `help:"scripted, or auto: OPENAI_API_KEY or a local Ollama if there is one." enum:"scripted,auto" default:"scripted"`
}

// demoWait bounds the demo: the task is due after demoLead and its run is short.
const (
	demoLead = 3 * time.Second
	demoWait = 3 * time.Minute
)

func (c demoCmd) Run(ctx context.Context, a *app) error {
	dir, err := os.MkdirTemp("", "runnerd-demo-*")
	if err != nil {
		return fmt.Errorf("make a directory for the demo: %w", err)
	}
	demo := *a
	demo.Settings = daemon.Settings{
		ConfigDir: filepath.Join(dir, "config"), StateDir: filepath.Join(dir, "state"), CacheDir: filepath.Join(dir, "cache"),
		LogLevel: a.LogLevel, LogFormat: a.LogFormat, Workers: 2, Grace: 2 * time.Second, Timezone: a.Timezone,
	}
	if err := demo.Complete(func(string) string { return "" }); err != nil {
		return err
	}
	demo.flags = " --config " + demo.ConfigDir + " --state " + demo.StateDir
	demo.Command = demo.again()
	due := time.Now().Add(demoLead).Truncate(time.Second)
	model, about := demoModel(ctx, c.Model, a)
	if _, err := writeNew(dir, demoFiles(dir, due, model)); err != nil {
		return err
	}
	text.Fprintf(a.out, demoIntro, about, demo.ConfigDir, demo.StateDir, filepath.Join(dir, "desk"))
	return c.play(ctx, &demo, due)
}

const demoIntro = `runnerd demo: a scheduled task runs an agent with real tools, under a policy.

  model   %s
  config  %s   (models, connectors, two tasks: plain files)
  state   %s    (two databases: runs, and what tasks may do)
  desk    %s     (the directory that the agent's tools work in)

`

// play starts the daemon's own parts, waits for the task to fire and shows its
// run.
func (c demoCmd) play(ctx context.Context, a *app, due time.Time) error {
	d, err := a.open(ctx)
	if err != nil {
		return err
	}
	life, end := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- d.Run(life, nil) }()
	err = c.watch(ctx, a, d, due)
	if err == nil && c.Keep {
		text.Fprintf(a.out, "\nThe daemon goes on; Ctrl-C ends it.\n")
		<-ctx.Done()
	}
	end()
	return errors.Join(err, <-served, d.Close())
}

func (c demoCmd) watch(ctx context.Context, a *app, d *daemon.Daemon, due time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, demoWait)
	defer cancel()
	p := newPrinter(a.out, d.Zone())
	text.Fprintf(a.out, "%s  waiting  morning-brief is due at %s\n", time.Now().In(d.Zone()).Format(time.TimeOnly), due.In(d.Zone()).Format(time.TimeOnly))
	run, err := firstRun(ctx, d.Main(), "morning-brief")
	if err != nil {
		return err
	}
	text.Fprintf(a.out, "%s  due      occurrence %s of morning-brief became run %s\n", run.CreatedAt.In(d.Zone()).Format(time.TimeOnly), run.Due.In(d.Zone()).Format(time.RFC3339), run.ID)
	for !run.Execution.Finished() {
		if !waitUntil(ctx, time.Now().Add(follows)) {
			return fmt.Errorf("watch the demo's run: %w", ctx.Err())
		}
		if err := d.Transcript(ctx, run.ID, p); err != nil {
			return err
		}
		if run, err = d.Main().Run(ctx, run.ID); err != nil {
			return err
		}
	}
	if err := d.Transcript(ctx, run.ID, p); err != nil {
		return err
	}
	text.Fprintf(a.out, "\n")
	p.end(run)
	return c.close(a, d, run)
}

// close shows that the write was real, what comes next, and how to go on.
func (c demoCmd) close(a *app, d *daemon.Daemon, run task.Run) error {
	brief := filepath.Join(filepath.Dir(a.ConfigDir), "desk", "briefs", "today.md")
	if data, err := os.ReadFile(brief); err == nil {
		text.Fprintf(a.out, "\nOn disk, written by the granted call, %s:\n    %s\n", brief, text.Raw(text.Indent(strings.TrimSpace(string(data)), 4)))
	}
	if run.Status() == task.StatusDenied {
		text.Fprintf(a.out, "\nThe status is \"denied\" because one call was refused: nobody is watching, so what is not granted is not done, and the run says so.\n")
	}
	if next, ok := d.Next("evening-review"); ok {
		text.Fprintf(a.out, "\nNext fire: evening-review at %s\n", next.In(d.Zone()).Format("Mon 2006-01-02 15:04:05 -07:00"))
	}
	text.Fprintf(a.out, `
Look around:   runnerd%[1]s show %[2]s
               runnerd%[1]s explain morning-brief
Your own:      runnerd init DIR            write a commented starter config
               runnerd check DIR           every error, and what each task would do
               runnerd --config DIR run TASK
               runnerd --config DIR serve
Remove it:     rm -r %[3]s
`, a.flags, run.ID, filepath.Dir(a.ConfigDir))
	return nil
}

func firstRun(ctx context.Context, main *db.DB, id string) (task.Run, error) {
	for {
		runs, err := main.Runs(ctx, db.RunFilter{Task: id, Limit: 1})
		if err != nil {
			return task.Run{}, err
		}
		if len(runs) > 0 {
			return runs[0], nil
		}
		if !waitUntil(ctx, time.Now().Add(follows)) {
			return task.Run{}, fmt.Errorf("wait for %s to fire: %w", id, ctx.Err())
		}
	}
}

// demoModel chooses the model and says which it is.
func demoModel(ctx context.Context, want string, a *app) (yaml, about string) {
	const script = "models:\n  default:\n    provider: scripted\n    script: scripts/demo.yaml\n"
	if want == "auto" {
		if a.Getenv("OPENAI_API_KEY") != "" {
			return "models:\n  default:\n    provider: openai\n    base_url: https://api.openai.com/v1\n    model: gpt-4.1-mini\n    api_key: ${env:OPENAI_API_KEY}\n    context_tokens: 128000\n",
				"gpt-4.1-mini at OpenAI (OPENAI_API_KEY is set); this costs tokens"
		}
		if name := ollamaModel(ctx); name != "" {
			return "models:\n  default:\n    provider: openai\n    base_url: " + ollamaURL + "/v1\n    model: " + name + "\n",
				name + ", from the Ollama on this machine"
		}
		return script, "SCRIPTED: neither OPENAI_API_KEY nor a local Ollama was found, so it plays a fixed file of answers"
	}
	return script, "SCRIPTED: no model is called, it plays a fixed file of answers (--model auto uses a real one)"
}

const ollamaURL = "http://127.0.0.1:11434"

// ollamaModel is a model that the Ollama on this machine has, or "".
func ollamaModel(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ollamaURL+"/api/tags", nil)
	if err != nil {
		return ""
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var tags struct {
		Models []struct {
			Name string `json:"name"`
		} `json:"models"`
	}
	if err := readJSON(resp.Body, 1<<20, &tags); err != nil || len(tags.Models) == 0 {
		return ""
	}
	return tags.Models[0].Name
}
