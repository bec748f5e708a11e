package task

import (
	"encoding/json"
	"testing"
)

func TestListThreeStates(t *testing.T) {
	cases := []struct {
		name     string
		list     List[string]
		json     string
		declared bool
	}{
		{"absent", List[string]{}, `null`, false},
		{"empty", ListOf[string](), `[]`, true},
		{"listed", ListOf("a", "b"), `["a","b"]`, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			data, err := json.Marshal(c.list)
			if err != nil || string(data) != c.json {
				t.Fatalf("JSON %s (%v), want %s", data, err, c.json)
			}
			var back List[string]
			if err := json.Unmarshal(data, &back); err != nil || back.Declared() != c.declared || back.Len() != c.list.Len() {
				t.Errorf("read back as %+v (%v)", back, err)
			}
			stored, err := c.list.Value()
			if err != nil || (stored == nil) == c.declared {
				t.Fatalf("stored as %v (%v)", stored, err)
			}
			var scanned List[string]
			if err := scanned.Scan(stored); err != nil || scanned.Declared() != c.declared || scanned.Len() != c.list.Len() {
				t.Errorf("scanned as %+v (%v)", scanned, err)
			}
		})
	}
}

func TestListOfAnotherShapeIsAnError(t *testing.T) {
	for _, stored := range []any{`"mail"`, `{}`, ``, `null`, `[1]`, 7, []byte(`7`)} {
		var l List[string]
		if err := l.Scan(stored); err == nil {
			t.Errorf("scan of %v gave %+v, want an error: unreadable is not absent", stored, l)
		}
	}
}

func TestListOfCopies(t *testing.T) {
	src := []string{"a"}
	l := ListOf(src...)
	src[0] = "b"
	if l.Items()[0] != "a" {
		t.Error("the list shares its caller's memory")
	}
}
