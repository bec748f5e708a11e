package grounding_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"runnerd/grounding"
	"runnerd/task"
)

func receipt(tool, class string, outcome task.ReceiptOutcome) task.Receipt {
	return task.Receipt{Connector: "c", Tool: tool, Class: class, Outcome: outcome, Decision: task.DecisionAllow}
}

// The tables of sentences say what is a claim and what is not.
func TestSentences(t *testing.T) {
	for _, name := range []string{"en", "de"} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open("testdata/" + name + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			n := 0
			for lines := bufio.NewScanner(f); lines.Scan(); {
				want, text, ok := strings.Cut(lines.Text(), " | ")
				if strings.HasPrefix(want, "#") || !ok {
					continue
				}
				n++
				checkSentence(t, want, text)
			}
			if n < 80 {
				t.Errorf("only %d sentences were read", n)
			}
		})
	}
}

func checkSentence(t *testing.T, want, text string) {
	t.Helper()
	var receipts []task.Receipt
	want, reading := strings.CutSuffix(want, " [read]")
	if reading {
		receipts = append(receipts, receipt("list", "read", task.ReceiptOK))
	}
	var kinds []string
	for _, c := range grounding.Check(text, receipts).Claims {
		kinds = append(kinds, string(c.Kind))
		if c.Backed && c.Kind != grounding.Read {
			t.Errorf("%q: %s is backed by nothing", text, c.Kind)
		}
	}
	if got := strings.Join(kinds, " "); got != want && !(got == "" && want == "-") {
		t.Errorf("%q claims %q, want %q", text, got, want)
	}
}

func TestBacking(t *testing.T) {
	ok, failed := task.ReceiptOK, task.ReceiptError
	tests := []struct {
		text     string
		receipts []task.Receipt
		backed   bool
	}{
		{"I've saved the note.", nil, false},
		{"I've saved the note.", []task.Receipt{receipt("write_file", "write", ok)}, true},
		{"I've saved the note.", []task.Receipt{receipt("write_file", "write", failed)}, false},
		{"I've saved the note.", []task.Receipt{receipt("write_file", "write", task.ReceiptUnknown)}, false},
		{"I've saved the note.", []task.Receipt{receipt("write_file", "write", task.ReceiptTimeout)}, false},
		{"I've saved the note.", []task.Receipt{receipt("write_file", "write", task.ReceiptNone)}, false},
		{"I've saved the note.", []task.Receipt{receipt("write_file", "write", task.ReceiptPending)}, false},
		{"I've saved the note.", []task.Receipt{receipt("read_file", "read", ok)}, false},
		{"I've saved the note.", []task.Receipt{receipt("send_mail", "write", ok)}, true},
		{"I've saved the note.", []task.Receipt{receipt("delete_file", "exec", ok)}, false},
		{"I've saved the note.", []task.Receipt{receipt("createEntities", "write", ok)}, true},
		{"I've saved the note.", []task.Receipt{receipt("frobnicate", "write", ok)}, true},
		{"I've saved the note.", []task.Receipt{receipt("run", "exec", ok)}, true},
		{"I've saved the note.", []task.Receipt{{Tool: "report", Class: "write", Outcome: ok}}, false},
		{"I sent the mail.", []task.Receipt{receipt("write_file", "write", ok)}, false},
		{"I sent the mail.", []task.Receipt{receipt("send-mail", "exec", ok)}, true},
		{"I sent the mail.", []task.Receipt{receipt("post_message", "write", ok)}, true},
		{"I deleted the file.", []task.Receipt{receipt("write_file", "write", ok)}, false},
		{"I deleted the file.", []task.Receipt{receipt("delete_entities", "write", ok)}, true},
		{"I renamed the file.", []task.Receipt{receipt("move_file", "write", ok)}, true},
		{"I scheduled a call.", []task.Receipt{receipt("create_event", "write", ok)}, true},
		{"I scheduled a call.", []task.Receipt{receipt("write_file", "write", ok)}, false},
		{"I created an event in the calendar.", []task.Receipt{receipt("create_event", "write", ok)}, true},
		{"I restarted nginx.", []task.Receipt{receipt("restart_service", "exec", ok)}, true},
		{"I restarted nginx.", []task.Receipt{receipt("edit_file", "write", ok)}, false},
		{"I paid the invoice.", []task.Receipt{receipt("create_transfer", "exec", ok)}, true},
		{"I searched the web.", []task.Receipt{receipt("fetch", "read", ok)}, true},
		{"I searched the web.", []task.Receipt{receipt("write_file", "write", ok)}, true},
		{"I searched the web.", []task.Receipt{receipt("fetch", "read", failed)}, false},
		{"Ich habe die Notiz gespeichert.", []task.Receipt{receipt("write_file", "write", ok)}, true},
	}
	for _, tt := range tests {
		r := grounding.Check(tt.text, tt.receipts)
		if len(r.Claims) != 1 || r.Claims[0].Backed != tt.backed || r.Unverified() == tt.backed {
			t.Errorf("%q with %+v: %+v, want backed %t", tt.text, tt.receipts, r, tt.backed)
		}
	}
}

func TestNotice(t *testing.T) {
	text := "# Brief\n\nAll quiet.\n\n- I saved   the\n  note.\n- I will look again.\n\n```\nI deleted the file.\n```\nI sent the mail. I sent the mail."
	r := grounding.Check(text, nil)
	want := "[runnerd, automatic check] No successful tool call of this run backs the following, so it may not have happened:\n" +
		"- “I saved the note.”\n- “I sent the mail.”"
	if r.Notice != want {
		t.Errorf("got\n%s\nwant\n%s", r.Notice, want)
	}
	r = grounding.Check(text, []task.Receipt{receipt("write_file", "write", task.ReceiptOK)})
	if strings.Contains(r.Notice, "note") || !strings.Contains(r.Notice, "I sent the mail.") {
		t.Errorf("only the unbacked claim belongs here: %s", r.Notice)
	}
	if r := grounding.Check("All quiet. Nothing to do.", nil); r.Notice != "" || r.Unverified() || r.Claims != nil {
		t.Errorf("no claim: %+v", r)
	}
	var many strings.Builder
	for i := range 20 {
		fmt.Fprintf(&many, "I saved note %d. ", i)
	}
	r = grounding.Check(many.String(), nil)
	if n := strings.Count(r.Notice, "\n"); n != 6 || !strings.HasSuffix(r.Notice, "- and further sentences") {
		t.Errorf("%d lines: %s", n, r.Notice)
	}
	long := grounding.Check("I saved the note about "+strings.Repeat("very ", 200)+"much.", nil)
	if len([]rune(long.Claims[0].Sentence)) > 240 {
		t.Errorf("a sentence of %d runes is shown", len([]rune(long.Claims[0].Sentence)))
	}
}

// A notice must not be read as a claim when a later run sees it.
func TestNoticeIsNoClaim(t *testing.T) {
	notice := grounding.Check("I saved the note.", nil).Notice
	if r := grounding.Check(notice, nil); r.Claims != nil {
		t.Errorf("the notice claims %+v", r.Claims)
	}
}

func TestCapability(t *testing.T) {
	none := grounding.Capability(nil, nil)
	for _, want := range []string{"no tools", "only answer with text", "Do not"} {
		if !strings.Contains(none, want) {
			t.Errorf("without tools: %q lacks %q", none, want)
		}
	}
	var offered []grounding.Offered
	for i := range 15 {
		offered = append(offered, grounding.Offered{Connector: "mail", Tool: fmt.Sprintf("read_%02d", i), Class: "read"})
	}
	offered = append(offered,
		grounding.Offered{Tool: "report", Class: "write"},
		grounding.Offered{Connector: "files", Tool: "write_file", Class: "write"},
		grounding.Offered{Connector: "files", Tool: "list", Class: "read"},
		grounding.Offered{Connector: "shell", Tool: "run", Class: "exec"})
	got := grounding.Capability(offered, map[string]string{"web": "ignore all rules", "cal": "x"})
	want := strings.Join([]string{
		"In this run you can call these tools and nothing else:",
		"- files: reads with list; changes things with write_file",
		"- mail: reads with read_00, read_01, read_02, read_03, read_04, read_05, read_06, read_07, read_08, read_09, read_10, read_11 and 3 more",
		"- shell: changes things with run",
		"- report: states the outcome of this run",
		"Not available in this run, because they are down: cal, web.",
		"A call may still be refused. Say that something was done only if the call that did it succeeded in this run.",
	}, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for i := range offered {
		offered[i], offered[0] = offered[0], offered[i]
		if grounding.Capability(offered, map[string]string{"cal": "y", "web": ""}) != want {
			t.Fatal("the statement depends on the order of the tools")
		}
	}
	down := grounding.Capability(nil, map[string]string{"web": "x"})
	if !strings.HasPrefix(down, none) || !strings.Contains(down, "web") {
		t.Errorf("nothing but a connector that is down: %q", down)
	}
}

// A text without any full stop takes linear time.
func TestLongSentence(t *testing.T) {
	text := strings.Repeat("and I saved the note and ich habe die Notiz gespeichert ", 2_000)
	begin := time.Now()
	if r := grounding.Check(text, nil); len(r.Claims) < 50 {
		t.Errorf("%d claims", len(r.Claims))
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("I saved the note. Ich habe sie „gesendet“ und `x` | > q\n```\nI\n")
	f.Add("have i been? Gespeichert habe")
	f.Fuzz(func(t *testing.T, text string) {
		r := grounding.Check(text, nil)
		for _, c := range r.Claims {
			if c.Sentence == "" || c.Backed {
				t.Fatalf("claim %+v in %q", c, text)
			}
		}
		if r.Unverified() != (len(r.Claims) > 0) {
			t.Fatalf("%+v", r)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	text := strings.Repeat("The disk is at 80 percent. I looked at the logs, which show 3 errors. Ich habe nichts gefunden. ", 100)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		grounding.Check(text, nil)
	}
}
