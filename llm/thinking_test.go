package llm

import (
	"strings"
	"testing"
	"time"
)

const fence = "```"

var splitTests = []struct{ name, text, answer, thinking string }{
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
	{"C3 in the middle of a line", "It is <think>is it?</think> four.", "It is four.", "is it?"},
	{"C3 in the middle of a word", "fo<THINK>or</THINK>ur", "four", "or"},
	{"C3 at the end of a line", "Four.<think>Sure?\nYes.</think>\nBye.", "Four.\nBye.", "Sure?\nYes."},
	{"C3 never closed in a line", "It is four. <think>Or is it", "It is four.", "Or is it"},
	{"C3 never closed in a later line", "Four.\n<reasoning>Or is it", "Four.", "Or is it"},
	{"C3 nested", "a <think>b <think>c</think> d</think> e", "a e", "b <think>c</think> d"},
	{"C3 nested at the beginning", "<think>b<think>c</think>d</think>e", "e", "b<think>c</think>d"},
	{"C3 opened twice and closed once", "<think>b<think>c</think>e", "e", "b<think>c"},
	{"C3 opened twice and closed once, then again", "a <think>b<think>c</think> d <think>e</think> f", "a d f", "b<think>c\n\ne"},
	{"C3 thinking", "x <thinking>b</thinking> y", "x y", "b"},
	{"C3 reasoning", "x <Reasoning>b</reasoning> y", "x y", "b"},
	{"C3 several in a line", "a<think>1</think>b<think>2</think>c", "abc", "1\n\n2"},
	{"C3 code in a later thought", "x\n<think>\n" + fence + "\n{\n</think>\ny", "x\n\ny", fence + "\n{"},
	{"spoken of: in quotation marks", "It wraps \"<think>\" and \"</think>\" so.", "It wraps \"<think>\" and \"</think>\" so.", ""},
	{"spoken of: by name", "The <think> tag and the </think> tag.", "The <think> tag and the </think> tag.", ""},
	{"spoken of: after its name", "It misses the closing tag </think>, I think.", "It misses the closing tag </think>, I think.", ""},
	{"spoken of: as a pair", "Put it between <think> and </think>.", "Put it between <think> and </think>.", ""},
	{"spoken of: in tildes", "~~~\na <think>x</think>\n~~~\nb", "~~~\na <think>x</think>\n~~~\nb", ""},
	{"spoken of and used", "`<think>` <think>a</think>b", "`<think>` b", "a"},
	{"in a code span that a thought begins in", "a <think>`x</think> `y` z", "a `y` z", "`x"},
	{"quoted in a code span", "The tag `</think>` was missing.", "The tag `</think>` was missing.", ""},
	{"quoted in a block", "See:\n" + fence + "\n<think>x</think>\n" + fence + "\nDone.", "See:\n" + fence + "\n<think>x</think>\n" + fence + "\nDone.", ""},
	{"in JSON", `{"a":"x</think>y"}`, `{"a":"x</think>y"}`, ""},
	{"white space stays", " a \n", " a \n", ""},
}

func TestSplitThinking(t *testing.T) {
	for _, tt := range splitTests {
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
	texts := []string{" \n<think>a b</think>\n\n[THINK]x[/THINK] b c", "<thin air", "<", "b", "", "x ◁ y ◁think▷z◁/think▷", "2 < 3 <4"}
	for _, tt := range splitTests {
		if !strings.Contains(tt.name, "lone closing") {
			texts = append(texts, tt.text)
		}
	}
	for _, text := range texts {
		want, _ := SplitThinking(text)
		for size := 1; size <= len(text)+1; size++ {
			if got := streamed(text, size); strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("%q in pieces of %d streamed as %q, want %q", text, size, got, want)
			}
		}
	}
}

func streamed(text string, size int) string {
	var b strings.Builder
	f := NewThinkFilter(func(s string) { b.WriteString(s) })
	for rest := text; rest != ""; {
		n := min(size, len(rest))
		f.Add(rest[:n])
		rest = rest[n:]
	}
	f.End()
	return b.String()
}

// What cannot be a tag streams at once.
func TestThinkFilterIsLive(t *testing.T) {
	var b strings.Builder
	f := NewThinkFilter(func(s string) { b.WriteString(s) })
	for _, piece := range []string{"It's 2 ", "< 3, ", "\"yes\"", "."} {
		f.Add(piece)
	}
	if b.String() != "It's 2 < 3, \"yes\"." {
		t.Errorf("%q came through so far", b.String())
	}
}

// Many tags take no more time than their bytes.
func TestThinkingIsLinear(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("<think>", 25_000), strings.Repeat("<think><think></think>", 9_000), strings.Repeat("`<think>` a</think>", 9_000),
		strings.Repeat("a<think>b</think>", 12_000), "<think>" + strings.Repeat("b ", 90_000),
	} {
		begin := time.Now()
		SplitThinking(text)
		streamed(text[:len(text)/10], 64)
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("%.40s… took %s", text, took)
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
