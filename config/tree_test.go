package config

import (
	"strings"
	"testing"
)

// A task that was good gives up its places; a later load that has to complain of it
// finds them again.
func TestPlacesAreFoundAgain(t *testing.T) {
	d := newDir(t, base(map[string]string{"tasks/far.md": "---\nschedule: \"@daily\"\nallow:\n  - memory/remember\n  - tool: memory/forget\n---\np\n"}))
	l := d.loader()
	if s := load(t, l); len(s.Problems) != 0 || l.cache["tasks/far.md"].parsed.tree != nil {
		t.Fatalf("%q, tree %v", texts(s.Problems), l.cache["tasks/far.md"].parsed.tree)
	}
	d.write("connectors.yaml", "mcpServers:\n  files: {builtin: files, root: /srv/reports}\n")
	var found []string
	for _, p := range load(t, l).Problems {
		if p.File == "tasks/far.md" {
			found = append(found, p.Error())
		}
	}
	if len(found) != 2 || !strings.HasPrefix(found[0], "tasks/far.md:4:5:") || !strings.HasPrefix(found[1], "tasks/far.md:5:11:") {
		t.Errorf("problems %q, want one at 4:5 and one at 5:11", found)
	}
}
