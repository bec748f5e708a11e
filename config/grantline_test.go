package config

import (
	"encoding/json"
	"testing"

	"runnerd/policy"
)

// The line that advice prints, pasted into a task file, is the line that was meant:
// what other readers of YAML and of decimals make of such texts does not matter.
func TestPastedLineIsTheLine(t *testing.T) {
	for name, arguments := range map[string]string{
		"W4 none":            `{}`,
		"W4 lists":           `{"to":["a@x.org","b"],"n":[1,2.50,[],{}],"o":{"k":{"a b":null}}}`,
		"W4 words of YAML":   `{"a":"any","b":"yes","c":"null","d":"~","e":"1e3","f":"2026-01-01","g":"0x1f","yes":true,"<<":"x","any":1,"rest":"absent","null":0}`,
		"W4 signs":           `{"a":"#x: {y}, [z] & * ! | > % @","b":"\"q\" 'p' \\","":"-","- a":"?"}`,
		"W4 hidden":          `{"a":"\u0000\u0007\u0085\u00a0\u200b\u2028\ufeff\u007f","b":"line\nbreak\ttab\r","c":"\ud83d\ude00\udb40\udc01"}`,
		"W3 decimals":        `{"a":19.99,"b":0.1,"c":1e-7,"d":-0.0,"e":123456789012345678901234567890,"f":0.1000000000000000055511151231257827,"g":1E+2}`,
		"W4 HTML and spaces": `{"a":"<b>&amp;</b>","b":" x ","c":"  "}`,
	} {
		g, open, err := policy.LineFor("files", "write_file", arguments)
		if err != nil || len(open) > 0 {
			t.Errorf("%s: %v, open %v", name, err, open)
			continue
		}
		p := parse("tasks/t.yaml", kindTask, []byte("prompt: p\n"+g.AllowLine()+"\n"))
		if len(p.problems) > 0 || p.task == nil {
			t.Errorf("%s: %s: %v", name, g.AllowLine(), p.problems)
			continue
		}
		got, err := json.Marshal((*p.task.Allow)[0])
		want, _ := json.Marshal(g)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: %s\nreads as %s\nnot     %s (%v)", name, g.AllowLine(), got, want, err)
		}
	}
}
