package control

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"testing"

	"runnerd/policy"
	"runnerd/task"
)

func tool(name, description string) task.Tool {
	return task.Tool{Name: name, Description: description, InputSchema: json.RawMessage(`{"type":"object"}`)}
}

func changes(diff []DiffRow) (list []string) {
	for _, d := range diff {
		list = append(list, d.Change+" "+d.Tool)
	}
	return list
}

func TestConnectorTools(t *testing.T) {
	r := newRig(t)
	c := r.as(operator)
	if list := must[[]ConnectorRow](t)(c.Connectors(ctx)); len(list) != 2 || list[0].ID != "files" || !list[0].Up {
		t.Errorf("connectors %+v", list)
	}
	r.lists("files", tool("get_file", "Reads."), tool("other", "Does."))
	rows := must[[]ToolRow](t)(c.ConnectorTools(ctx, "files"))
	if len(rows) != 2 || rows[0].Class != policy.ClassRead || rows[1].Class != policy.ClassExec || rows[0].Pin != PinUnpinned || rows[0].From == "" {
		t.Errorf("tools %+v", rows)
	}
	ok(t, r.rules.Accept(ctx, "files", r.tools["files"], "first use"))
	r.lists("files", tool("get_file", "Reads."), tool("other", "Does more."), tool("third", "New."))
	rows = must[[]ToolRow](t)(c.ConnectorTools(ctx, "files"))
	if got := []string{rows[0].Pin, rows[1].Pin, rows[2].Pin}; !slices.Equal(got, []string{PinAccepted, PinChanged, PinNew}) {
		t.Errorf("pins %v", got)
	}
}

func TestConnectorAccept(t *testing.T) {
	r := newRig(t)
	c := r.as(operator)
	r.lists("files", tool("a", "1"), tool("b", "1"), tool("gone", "1"))
	if diff := must[[]DiffRow](t)(c.ConnectorDiff(ctx, "files")); !slices.Equal(changes(diff), []string{"new a", "new b", "new gone"}) {
		t.Errorf("nothing accepted yet: %v", changes(diff))
	}
	_, err := c.Accept(ctx, "files", AcceptRequest{})
	refusedWith(t, err, http.StatusUnprocessableEntity, CodeInvalidValue) // I10: nothing was looked at
	first := DiffHash(must[[]DiffRow](t)(c.ConnectorDiff(ctx, "files")))
	r.lists("files", tool("a", "other"), tool("b", "1"), tool("gone", "1"))
	for _, tools := range []task.List[string]{{}, task.ListOf("a"), task.ListOf("b")} {
		_, err = c.Accept(ctx, "files", AcceptRequest{Hash: first, Tools: tools})
		refusedWith(t, err, http.StatusConflict, CodeConflict) // I10: it changed after the look
	}
	_, err = c.Accept(ctx, "files", AcceptRequest{Expect: map[string]string{"b": r.tools["files"][1].DefinitionHash()}})
	refusedWith(t, err, http.StatusUnprocessableEntity, CodeInvalidValue) // I10: one was not looked at
	r.lists("files", tool("a", "1"), tool("b", "1"), tool("gone", "1"))
	all := must[AcceptView](t)(c.Accept(ctx, "files", AcceptRequest{Hash: first}))
	if !slices.Equal(all.Accepted, []string{"a", "b", "gone"}) || len(all.Left) != 0 {
		t.Errorf("accepted %+v", all)
	}
	b2 := tool("b", "2")
	b2.InputSchema = json.RawMessage(`{"type":"object","properties":{"x":{}}}`)
	r.lists("files", tool("a", "2"), b2, tool("c", "1"))
	diff := must[[]DiffRow](t)(c.ConnectorDiff(ctx, "files"))
	if !slices.Equal(changes(diff), []string{"changed a", "changed b", "new c", "removed gone"}) {
		t.Fatalf("diff %v", changes(diff))
	}
	if !slices.Equal(diff[1].Fields, []string{"description", "inputSchema"}) || diff[1].Accepted.Description != "1" || diff[1].Now.Description != "2" {
		t.Errorf("diff of b %+v", diff[1])
	}
	if none := must[AcceptView](t)(c.Accept(ctx, "files", AcceptRequest{Tools: task.ListOf[string]()})); len(none.Accepted) != 0 || len(none.Left) != 4 {
		t.Errorf("[] accepted %+v", none)
	}
	_, err = c.Accept(ctx, "files", AcceptRequest{Tools: task.ListOf("a"), Expect: map[string]string{"a": diff[1].Hash}})
	refusedWith(t, err, http.StatusConflict, CodeConflict)
	_, err = c.Accept(ctx, "files", AcceptRequest{Tools: task.ListOf("nix")})
	refusedWith(t, err, http.StatusUnprocessableEntity, CodeInvalidValue)
	_, err = askServer[any](c, http.MethodPost, "/api/connectors/files/accept", `{"tools":"a"}`)
	refusedWith(t, err, http.StatusUnprocessableEntity, CodeInvalidValue)
	if again := must[[]DiffRow](t)(c.ConnectorDiff(ctx, "files")); !reflect.DeepEqual(again, diff) {
		t.Errorf("refusals changed the diff to %v", changes(again))
	}
	one := must[AcceptView](t)(c.Accept(ctx, "files", AcceptRequest{Tools: task.ListOf("a"), Expect: map[string]string{"a": diff[0].Hash}}))
	if !slices.Equal(changes(one.Left), []string{"changed b", "new c", "removed gone"}) {
		t.Errorf("left %v", changes(one.Left))
	}
	history := must[[]task.Tool](t)(r.rules.Definitions(ctx, "files"))
	if len(history) != 3 {
		t.Errorf("definitions %+v", history)
	}
}
