package llm

import (
	"strings"
	"testing"
)

func TestSplitThinking(t *testing.T) {
	fence := "```"
	tests := []struct{ name, text, answer, thinking string }{
		{"none", "All is well.", "All is well.", ""},
		{"C3 tags", "<think>\nHm.\n</think>\n\nAll is well.", "All is well.", "Hm."},
		{"C3 lone closing", "Hm, let me see.\n</think>\n\nAll is well.", "All is well.", "Hm, let me see."},
		{"C3 lone closing in its line", "Hm.</think>All is well.", "All is well.", "Hm."},
		{"C3 nothing after it", "<think>Hm.</think>", "", "Hm."},
		{"C3 never closed", "<think>\nHm, the tool", "", "Hm, the tool"},
		{"C3 empty", "<think>\n\n</think>\n\nAll is well.", "All is well.", ""},
		{"two at the beginning", "<think>a</think>\n<think>b</think>c", "c", "a\n\nb"},
		{"a later line", "First.\n<think>b</think>\nThen.", "First.\n\nThen.", "b"},
		{"a lone closing after a pair", "<think>a</think>b</think>c", "c", "a\n\nb"},
		{"other tags", "[THINK]a[/THINK]b", "b", "a"},
		{"upper case", "<THINKING>a</Thinking>b", "b", "a"},
		{"harmony", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", "b", "a"},
		{"code in the thought", "<think>" + fence + "json\n{</think>b", "b", fence + "json\n{"},
		{"quoted in a sentence", "It wraps <think>this</think> so.", "It wraps <think>this</think> so.", ""},
		{"quoted in a code span", "The tag `</think>` was missing.", "The tag `</think>` was missing.", ""},
		{"quoted in a block", "See:\n" + fence + "\n<think>x</think>\n" + fence + "\nDone.", "See:\n" + fence + "\n<think>x</think>\n" + fence + "\nDone.", ""},
		{"in JSON", `{"a":"x</think>y"}`, `{"a":"x</think>y"}`, ""},
		{"white space stays", " a \n", " a \n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			answer, thinking := SplitThinking(tt.text)
			if answer != tt.answer || thinking != tt.thinking {
				t.Errorf("got %q and %q, want %q and %q", answer, thinking, tt.answer, tt.thinking)
			}
		})
	}
}

// What streams is what is answered, in whatever pieces it comes.
func TestThinkFilter(t *testing.T) {
	for _, text := range []string{"<think>a</think>b", " \n<think>a b</think>\n\n[THINK]x[/THINK] b c", "<thin air", "<", "b", "<think>never", ""} {
		want, _ := SplitThinking(text)
		for size := 1; size <= len(text)+1; size++ {
			var b strings.Builder
			f := NewThinkFilter(func(s string) { b.WriteString(s) })
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				f.Add(rest[:n])
				rest = rest[n:]
			}
			f.End()
			if strings.TrimSpace(b.String()) != strings.TrimSpace(want) {
				t.Errorf("%q in pieces of %d streamed as %q, want %q", text, size, b.String(), want)
			}
		}
	}
}

func FuzzSplitThinking(f *testing.F) {
	f.Add("a<think>b</think>c")
	f.Fuzz(func(t *testing.T, text string) {
		answer, thinking := SplitThinking(text)
		if len(answer)+len(thinking) > len(text)+8*len(thinking)+8 {
			t.Errorf("%q grew to %q and %q", text, answer, thinking)
		}
	})
}
