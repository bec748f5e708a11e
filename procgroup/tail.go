package procgroup

import "strings"

// keptTail is how many bytes a Tail keeps.
const keptTail = 2000

// Tail keeps the end of what is written, for the error of a program that failed.
type Tail struct{ b []byte }

// Write takes everything.
func (t *Tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - keptTail; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

// Shown is the tail in one line, led in by a colon; "" if there is none.
func (t *Tail) Shown() string {
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(t.b), "\uFFFD")), " ")
	if s == "" {
		return ""
	}
	return ": " + s
}
