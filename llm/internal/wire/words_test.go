package wire

import (
	"strings"
	"testing"
)

// I12: what a vendor says is cut between words, so that no half of a key is left.
func TestWordsCutNoKey(t *testing.T) {
	const key = "sk-0123456789abcdef0123456789abcdef"
	for before := maxWords - len(key) - 2; before < maxWords; before++ {
		said := strings.Repeat("x", before-1) + " " + key + " is no good " + strings.Repeat("y ", 100)
		got := words(said)
		if strings.Contains(got, key[:8]) && !strings.Contains(got, key) {
			t.Fatalf("%d bytes before the key: %q holds half of it", before, got[max(0, len(got)-60):])
		}
		if len(got) > maxWords+len("…") {
			t.Fatalf("%d bytes, want at most %d", len(got), maxWords)
		}
	}
}
