package policy

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestFreeTextsAreOpened is friction line 10: a line to paste holds no whole text, and
// nothing else of the call is opened.
func TestFreeTextsAreOpened(t *testing.T) {
	prose, long := strings.Repeat("so it goes. ", 20), "/srv/"+strings.Repeat("d", 200)
	args, err := json.Marshal(map[string]string{"path": long, "content": prose, "mode": "append"})
	if err != nil {
		t.Fatal(err)
	}
	g, open, err := LineFor("files", "write_file", string(args))
	if err != nil || strings.Join(open, " ") != "content" || strings.Contains(g.AllowLine(), "so it goes") || !strings.Contains(g.AllowLine(), "content: any") {
		t.Errorf("%s, open %v, %v", g.AllowLine(), open, err)
	}
	if !strings.Contains(g.AllowLine(), long) || !strings.Contains(g.AllowLine(), `mode: {eq: "append"}`) {
		t.Errorf("%s lets more through than the text", g.AllowLine())
	}
}
