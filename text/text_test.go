package text_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"runnerd/text"
)

func TestForms(t *testing.T) {
	tests := []struct{ in, escape, line, field, block string }{
		{"plain text", "plain text", "plain text", "plain text", "plain text"},
		{"umläute, 漢字, 👍", "umläute, 漢字, 👍", "umläute, 漢字, 👍", "umläute, 漢字, 👍", "umläute, 漢字, 👍"},
		{" a\n\tb  c ", ` a\x0a\x09b  c `, "a b c", " a  b  c ", " a\n    b  c "},
		{"a\r\nb\rc", `a\x0d\x0ab\x0dc`, "a b c", "a  b c", "a\nb\\x0dc"},
		{"\x1b[2J\a\x00\x7f", `\x1b[2J\x07\x00\x7f`, `\x1b[2J\x07\x00\x7f`, `\x1b[2J\x07\x00\x7f`, `\x1b[2J\x07\x00\x7f`},
		{"\u009b31m", `\u009b31m`, `\u009b31m`, `\u009b31m`, `\u009b31m`},
		{"a\u202eb\u2066c\u200bd\u200de\ufeff", `a\u202eb\u2066c\u200bd\u200de\ufeff`, `a\u202eb\u2066c\u200bd\u200de\ufeff`, `a\u202eb\u2066c\u200bd\u200de\ufeff`, `a\u202eb\u2066c\u200bd\u200de\ufeff`},
		{"a\u2028b\u2029c\u0085d", `a\u2028b\u2029c\u0085d`, "a b c d", `a\u2028b\u2029c\u0085d`, `a\u2028b\u2029c\u0085d`},
		{"\xff\xc0\xafa", `\xff\xc0\xafa`, `\xff\xc0\xafa`, `\xff\xc0\xafa`, `\xff\xc0\xafa`},
		{"a\u3164b\u115fc\U000e0041d\U000e0101", `a\u3164b\u115fc\U000e0041d\U000e0101`, `a\u3164b\u115fc\U000e0041d\U000e0101`, `a\u3164b\u115fc\U000e0041d\U000e0101`, `a\u3164b\u115fc\U000e0041d\U000e0101`},
		{"\uFFFD \ue000", "\uFFFD \\ue000", "\uFFFD \\ue000", "\uFFFD \\ue000", "\uFFFD \\ue000"},
	}
	for _, tt := range tests {
		for _, got := range [][3]string{
			{"escape", text.Escape(tt.in), tt.escape}, {"line", text.Line(tt.in), tt.line},
			{"field", text.Field(tt.in), tt.field}, {"block", text.Block(tt.in), tt.block},
		} {
			if got[1] != got[2] {
				t.Errorf("%s of %q is %q, want %q", got[0], tt.in, got[1], got[2])
			}
		}
	}
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"äöü", 3, "ä…"}, {"ä", 1, "…"}, {"", 0, ""}, {"\xff\xff\xff", 1, "\xff…"}} {
		if got := text.Cut(tt.in, tt.limit); got != tt.want {
			t.Errorf("cut(%q, %d) is %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}

type worded string

type state struct{ name string }

func (s state) String() string { return s.name }

// Whatever the type of an argument and the verb, it stays in its line.
func TestSprintf(t *testing.T) {
	const evil = "a\n\x1bb"
	got := text.Sprintf("%s|%v|%s|%v|%v|%-8s|%6d|%t|%s|%v|%x|%.2f|%v\n",
		evil, worded(evil), errors.New(evil), state{evil}, []string{evil}, evil, 7, true, []byte(evil), text.Raw("x\ny"), 255, 1.5, nil)
	want := `a \x1bb|a \x1bb|a \x1bb|a \x1bb|[a \x1bb]|a \x1bb |     7|true|a \x1bb|x` + "\n" + `y|ff|1.50|<nil>` + "\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestIndent(t *testing.T) {
	if got := text.Indent("a\r\nstatus ok\n\x1b", 3); got != "a\n   status ok\n   \\x1b" {
		t.Errorf("%q", got)
	}
}

// What is shown is printable, in one line where that is promised, and JSON stays
// the same document.
func FuzzForms(f *testing.F) {
	f.Add("a\n\x1b[2J\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		for name, got := range map[string]string{"escape": text.Escape(s), "line": text.Line(s), "field": text.Field(s), "block": strings.ReplaceAll(text.Block(s), "\n", "")} {
			if !utf8.ValidString(got) || strings.IndexFunc(got, func(r rune) bool { return r != ' ' && !unicode.IsGraphic(r) }) >= 0 {
				t.Errorf("%s of %q is %q", name, s, got)
			}
		}
		if text.Escape(text.Escape(s)) != text.Escape(s) {
			t.Errorf("escaping %q twice changes it", s)
		}
		doc, _ := json.Marshal(map[string]string{s: s})
		shown := text.JSON(doc)
		var a, b map[string]string
		if json.Unmarshal(doc, &a) != nil || json.Unmarshal(shown, &b) != nil || len(b) != 1 {
			t.Fatalf("JSON of %q is %q", s, shown)
		}
		for k := range a {
			if a[k] != b[k] {
				t.Errorf("JSON of %q is %q", s, shown)
			}
		}
		if text.Escape(string(shown)) != string(shown) {
			t.Errorf("JSON of %q shows %q", s, shown)
		}
	})
}
