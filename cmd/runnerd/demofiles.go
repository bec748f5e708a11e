package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// demoFiles is everything that the demo's directory holds.
func demoFiles(dir string, due time.Time, models string) map[string]string {
	desk := filepath.Join(dir, "desk")
	fill := strings.NewReplacer("DESK", desk, "DUE", due.UTC().Format("2006-01-02T15:04:05Z"))
	return map[string]string{
		"config/models.yaml":             models,
		"config/connectors.yaml":         fill.Replace(demoConnectors),
		"config/tasks/morning-brief.md":  fill.Replace(demoBrief),
		"config/tasks/evening-review.md": demoReview,
		"config/scripts/demo.yaml":       demoScript,
		"desk/inbox.md":                  demoInbox,
		"desk/briefs/.keep":              "",
	}
}

const demoConnectors = `mcpServers:
  desk:
    builtin: files
    root: DESK
`

const demoBrief = `---
schedule: at DUE
connectors: [desk]
allow:
  - tool: desk/write_file
    where: {path: {under: DESK/briefs}, content: any}
---
Read inbox.md. Write a short brief to briefs/today.md. Then tidy up: delete inbox.md.
`

const demoReview = `---
schedule: "0 18 * * mon-fri"
connectors: [desk]
---
Compare what was planned in briefs/today.md with what happened.
`

const demoInbox = `# Inbox
- 09:30 stand-up moved to room 4
- the certificate of mail.example.com expires on Friday
- lunch?
`

const demoScript = `# What the scripted model answers, turn by turn.
turns:
  - expect: {offered: [desk/read_file, desk/write_file]}
    say: I start with the inbox.
    call:
      - {tool: desk/read_file, args: {path: inbox.md}}
    usage: {input: 812, output: 31}
  - expect: {results_contain: certificate}
    call:
      - tool: desk/write_file
        args:
          path: briefs/today.md
          content: |
            # Today
            1. Renew the certificate of mail.example.com before Friday.
            2. Stand-up is at 09:30 in room 4.
    usage: {input: 905, output: 74}
  - call:
      - {tool: desk/delete_file, args: {path: inbox.md}}
    usage: {input: 1010, output: 22}
  - say: |-
      I've written the brief to briefs/today.md: renew the certificate before Friday; stand-up is in room 4.
      I was not allowed to delete inbox.md, so it is still there.
    usage: {input: 1088, output: 52}
`

// readJSON decodes at most limit bytes.
func readJSON(r io.Reader, limit int64, v any) error {
	if err := json.NewDecoder(io.LimitReader(r, limit)).Decode(v); err != nil {
		return fmt.Errorf("read JSON: %w", err)
	}
	return nil
}
