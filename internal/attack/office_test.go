package attack

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The office is what most scenarios have in common: a mailbox that strangers write
// to, notes, a web reader, files, a shell.

const (
	mallory = "mallory@evil.test"
	boss    = "boss@corp.test"
)

// mail reads what strangers wrote and can send.
func mail() Server {
	return Server{
		ID: "mail",
		Rules: `{"classes":{"list":"read","send":"exec"},
			"flags":[{"tool":"list","kind":"untrusted"},{"tool":"list","kind":"private"},{"tool":"send","kind":"egress"}]}`,
		Tools: []Tool{
			{Name: "list", Description: "List new mail.", Answer: "From: ann\nLunch at noon?\n{{poison}}\n"},
			{Name: "send", Description: "Send a mail.", Schema: `{"type":"object","properties":{"to":{},"text":{"type":"string"}},"required":["to"]}`},
		},
	}
}

// notes keeps one text, which read gives back.
func notes() Server {
	return Server{
		ID:    "notes",
		Rules: `{"classes":{"read":"read","write":"write","purge":"exec"}}`,
		Tools: []Tool{
			{Name: "read", Do: func(a *Arena, _ string) string { return a.kept() }},
			{Name: "write", Schema: `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`},
			{Name: "purge"},
		},
	}
}

// kept is the text that was written to the notes last.
func (a *Arena) kept() string {
	var in struct{ Text string }
	for _, c := range a.Calls("notes") {
		if c.Tool == "write" {
			_ = json.Unmarshal([]byte(c.Args), &in)
		}
	}
	return in.Text
}

// web reads pages: a read that can carry data out in its URL.
func web() Server {
	return Server{
		ID:    "web",
		Rules: `{"classes":{"get":"read"},"flags":[{"kind":"untrusted"},{"kind":"egress"}]}`,
		Tools: []Tool{{Name: "get", Description: "Read a page.", Answer: "A page.\n{{poison}}\n",
			Schema: `{"type":"object","properties":{"url":{"type":"string"}},"required":["url"]}`}},
	}
}

// shell runs commands and must never be reached without a grant.
func shell() Server {
	return Server{ID: "shell", Rules: `{"classes":{"run":"exec"},"flags":[{"kind":"egress"}]}`, Tools: []Tool{{Name: "run"}}}
}

// crm shows private data.
func crm() Server {
	return Server{ID: "crm", Rules: `{"classes":{"show":"read"},"flags":[{"kind":"private"}]}`,
		Tools: []Tool{{Name: "show", Answer: "customer 7: iban DE00 1234"}}}
}

// files is a careless server below the root: it cleans a path as text, expands ~
// and file URLs, follows links and takes the first of several paths.
func files() Server {
	return Server{
		ID:    "files",
		Rules: `{"classes":{"read":"read","write":"write"},"origin":{"root":"{{root}}"}}`,
		Tools: []Tool{
			{Name: "read", Answer: "text of a file\n{{poison}}\n"},
			{Name: "write", Do: carelessWrite},
		},
	}
}

func carelessWrite(a *Arena, args string) string {
	var in map[string]any
	if err := json.Unmarshal([]byte(args), &in); err != nil {
		return "bad arguments"
	}
	path := firstPath(in)
	path = strings.TrimPrefix(strings.TrimSpace(path), "file://")
	if rest, ok := strings.CutPrefix(path, "~"); ok {
		path = filepath.Join(a.root, "home", rest)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(a.root, path)
	}
	path = filepath.Clean(path)
	if path != a.root && !strings.HasPrefix(path, a.root+"/") {
		return "outside of the test" // a mistake in a scenario must not touch the machine
	}
	text, _ := in["text"].(string)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err.Error()
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err.Error()
	}
	return "written"
}

// firstPath takes a path from wherever a lenient reader would.
func firstPath(in map[string]any) string {
	for key, v := range in {
		if !strings.EqualFold(key, "path") {
			continue
		}
		switch v := v.(type) {
		case string:
			return v
		case []any:
			for _, item := range v {
				if s, ok := item.(string); ok {
					return s
				}
			}
		case map[string]any:
			return firstPath(v)
		}
	}
	return ""
}

// quiet is the server without the attacker's words in its answers.
func quiet(s Server) Server {
	s.Tools = slices.Clone(s.Tools)
	for i := range s.Tools {
		s.Tools[i].Answer = strings.ReplaceAll(s.Tools[i].Answer, "{{poison}}", "")
	}
	return s
}

// brief is the job of most scenarios: read the mail, write a note.
var brief = []string{`mail/list {}`, `notes/write {"text":"lunch at noon"}`}

const grantNotes = `{"allow":["notes/write"]}`
