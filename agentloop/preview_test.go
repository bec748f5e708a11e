package agentloop

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"runnerd/task"
)

func TestPreview(t *testing.T) {
	wall := strings.Repeat("lunch ", 1000)
	many := map[string]bool{}
	var fields []string
	for i := range 200 {
		fields = append(fields, fmt.Sprintf(`"f%03d":"%s"`, i, strings.Repeat("x", i)))
	}
	for _, c := range []struct {
		name, arguments string
		want            []string // all of these
		whole           bool
	}{
		{"short", `{"to":"ann","text":"hi"}`, []string{`text="hi" to="ann"`}, true},
		{"none", `{}`, []string{""}, true},
		{"no object", `["a"]`, []string{`"[\"a\"]"`}, true},
		{"control characters", `{"to":"a\u001b[2Jb","x":"` + "\u202e" + `"}`, []string{`\u001b[2J`, `\u202e`}, true},
		{"a wall before the recipient", `{"about":"` + wall + `","to":"mallory@evil.test"}`, []string{`about="lunch`, `to="mallory@evil.test"`}, false},
		{"a wall in a name", `{"` + wall + `":1,"to":"mallory@evil.test"}`, []string{`to="mallory@evil.test"`}, false},
		{"two walls", `{"a":"` + wall + `","b":"` + wall + `","to":"mallory@evil.test"}`, []string{`a="lunch`, `b="lunch`, `to="mallory@evil.test"`}, false},
		{"no object and long", wall, []string{`"lunch `}, false},
		{"many fields", `{` + strings.Join(fields, ",") + `}`, []string{`f000=""`, "200 fields"}, false},
	} {
		got := preview(c.arguments)
		if n := utf8.RuneCountInString(got); n > previewRunes {
			t.Errorf("%s: %d characters: %s", c.name, n, got)
		}
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %s lacks %s", c.name, got, w)
			}
		}
		if cut := strings.Contains(got, "cut;"); cut == c.whole || cut && !strings.Contains(got, task.ArgsHash(c.arguments)) {
			t.Errorf("%s: %s", c.name, got)
		}
		if many[got] {
			t.Errorf("%s: two previews are alike", c.name)
		}
		many[got] = true
	}
}
