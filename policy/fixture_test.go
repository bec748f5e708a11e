package policy

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"runnerd/task"
)

// tool makes a definition with a schema that takes any object.
func tool(name string) task.Tool {
	t := task.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}
	t.Hash = t.DefinitionHash()
	return t
}

func annotated(name string, readOnly, destructive bool) task.Tool {
	t := tool(name)
	t.Annotations = task.Annotations{ReadOnly: &readOnly, Destructive: &destructive}
	t.Hash = t.DefinitionHash()
	return t
}

// rulesWith is a connector without flags whose definitions are accepted on first use.
func rulesWith(classes map[string]Class) ConnectorRules {
	return ConnectorRules{Classes: classes, Pin: PinFirstUse, Flags: []Flag{}}
}

// fixture is a task with three connectors, nothing granted.
func fixture() Effective {
	return Effective{
		Task: "brief", Session: "brief",
		OnAsk: OnAskDeny, Limits: DefaultLimits(),
		Sources: map[string]Layer{"allow": LayerFile, "deny": LayerFile},
		Connectors: map[string]ConnectorRules{
			"files":   {Classes: map[string]Class{"read_file": ClassRead, "write_file": ClassWrite, "delete_file": ClassExec}, Pin: PinFirstUse, Flags: []Flag{}, Origin: Origin{Root: "/srv/reports"}},
			"mail":    rulesWith(map[string]Class{"search": ClassRead, "send_*": ClassExec}),
			"browser": rulesWith(map[string]Class{"x__y__z": ClassRead}),
		},
	}
}

func connectedFixture() []Connected {
	return []Connected{
		{ID: "mail", Up: true, Tools: []task.Tool{tool("search"), tool("send_message")}},
		{ID: "files", Up: true, Tools: []task.Tool{tool("read_file"), tool("write_file"), tool("delete_file")}},
		{ID: "browser", Up: true, Tools: []task.Tool{tool("x__y__z")}},
	}
}

// call is a call of a tool that was offered, as it is listed now.
func call(connector, name, arguments string) Call {
	t := tool(name)
	connected := connectedFixture()
	if c, _ := connectedAs(connected, connector); !lists(c, name) {
		connected = append(connected, Connected{ID: connector, Up: true, Tools: []task.Tool{t}})
	}
	return Call{
		Name: Alias(connector, name), Arguments: arguments, Connected: connected,
		Slots:   []task.Slot{{Alias: Alias(connector, name), Connector: connector, Tool: name, Definition: t.Hash}},
		Resolve: resolveUnder("/srv/reports"),
	}
}

// resolveUnder resolves as a file system without links would, relative to root,
// but knows one link: /srv/reports/link leads to /etc.
func resolveUnder(root string) func(string, string) (string, error) {
	return func(_, path string) (string, error) {
		if strings.Contains(path, "broken") {
			return "", errors.New("no such place")
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(root, path)
		}
		path = filepath.Clean(path)
		if rest, ok := strings.CutPrefix(path, "/srv/reports/link"); ok {
			path = "/etc" + rest
		}
		return path, nil
	}
}

func mustGrant(t *testing.T, s string) Grant {
	t.Helper()
	g, err := ParseGrant(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func hasText(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s: want %q in %q", what, part, text)
		}
	}
}
