package config

import (
	"encoding/json"
	"strings"
	"testing"

	"runnerd/policy"
)

// A number means what a person reads, digit by digit, or its file is refused with
// the place and what to do: YAML has forms that look like one number and are another.
func TestNumbersMeanWhatTheyLookLike(t *testing.T) {
	const refused, text = "", "text"
	for written, want := range map[string]string{
		"19": "19", "-19": "-19", "+5": "5", "0": "0", "-0": "-0", "0.5": "0.5", "19.90": "19.90", "1e3": "1e3", "1E-2": "1E-2", "+1e3": "1e3",
		".5": "0.5", "-.5": "-0.5", "5.": "5", "12345678901234567890.123456789": "12345678901234567890.123456789",
		".12345678901234567890123": "0.12345678901234567890123", "12345678901234567890.": "12345678901234567890", "1.e2": "1e2", "0.0": "0.0",
		"019": refused, "-019": refused, "+019": refused, "017": refused, "00": refused, "01.5": refused, "-00.5": refused, "08": refused, "012e2": refused,
		"0x10": refused, "0X1F": refused, "-0x1": refused, "0b11": refused, "0o17": refused, "1_000": refused, "1_000.5": refused, "1_": refused,
		".inf": refused, "-.Inf": refused, "+.INF": refused, ".nan": refused, ".NaN": refused, "1e999": refused, "1_0e1": refused, "0x1p4": refused, "+1_0.5": refused,
		"1:30": text, "1:30:00": text, "1.2.3": text, "2026-01-02": text, "inf": text, "1e": text, "1 000": text, "\"019\"": text,
	} {
		for _, key := range []string{"eq", "in", "max"} {
			value := written
			if key == "in" {
				value = "[" + written + "]"
			}
			p := parse("tasks/t.yaml", kindTask, []byte("prompt: p\nallow:\n  - tool: files/x\n    where: {a: {"+key+": "+value+"}}\n"))
			if want == refused || want == text && key == "max" {
				if len(p.problems) != 1 || p.problems[0].Line != 4 || p.problems[0].Expected == "" || want == refused && !strings.Contains(p.problems[0].Hint, "quotes") {
					t.Errorf("%s: %s: want one problem with place and cure, have %v", key, written, p.problems)
				}
				continue
			}
			if len(p.problems) > 0 {
				t.Errorf("%s: %s: %v", key, written, p.problems)
				continue
			}
			c := (*p.task.Allow)[0].Where["a"]
			got := map[string]any{"eq": c.Eq, "in": c.In, "max": c.Max}[key]
			if key == "in" {
				got = c.In[0]
			}
			digits := want
			if want == text {
				digits = strings.Trim(written, `"`)
			}
			if n, ok := got.(json.Number); want != text && (!ok || n.String() != digits) && got != policy.Number(digits) || want == text && got != digits {
				t.Errorf("%s: %s is %#v, want %s", key, written, got, digits)
			}
		}
	}
}
