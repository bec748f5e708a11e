package control

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape writes what a terminal could obey, or what could hide or reorder text
// (control, format and private characters, line separators), as \x1b or \u202e.
// Everything else stays, so that escaping twice changes nothing.
func Escape(s string) string {
	if strings.IndexFunc(s, odd) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !odd(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xFFFF:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func odd(r rune) bool { return r != ' ' && !unicode.IsGraphic(r) }
