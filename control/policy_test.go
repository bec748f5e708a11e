package control

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"runnerd/policy"
	"runnerd/task"
	"runnerd/taskpolicy"
)

// Case 4: a missing key leaves its field, [] empties it, null clears it; GET tells
// own value, effective set and source.
func TestPatchSessionThreeStates(t *testing.T) {
	r := newRig(t)
	c := r.as(operator)
	check := func(step string, got ConnectorsView, own, effective string, source policy.Source) {
		t.Helper()
		a, b := string(must[[]byte](t)(json.Marshal(got.Own))), string(must[[]byte](t)(json.Marshal(got.Effective)))
		if a != own || b != effective || got.Source != source {
			t.Errorf("%s: own %s, effective %s, source %s; want %s, %s, %s", step, a, b, got.Source, own, effective, source)
		}
	}
	get := func() ConnectorsView { return must[ConnectorsView](t)(c.SessionConnectors(ctx, "brief")) }
	send := func(body string) ConnectorsView {
		return must[ConnectorsView](t)(patched[ConnectorsView](c, "/api/session/brief/connectors", body))
	}
	check("at first", get(), "null", "null", "all")
	check("listed", send(`{"connector_ids":["mail","files"]}`), `["mail","files"]`, `["mail","files"]`, "session")
	check("missing leaves", send(`{}`), `["mail","files"]`, `["mail","files"]`, "session")
	check("empty empties", send(`{"connector_ids":[]}`), `[]`, `[]`, "session")
	check("read again", get(), `[]`, `[]`, "session")
	must[ProjectView](t)(patched[ProjectView](c, "/api/projects/ops", `{"connector_ids":["web"]}`))
	check("a project does not upgrade []", get(), `[]`, `[]`, "session")
	check("null clears", send(`{"connector_ids":null}`), `null`, `["web"]`, "project")
	must[PolicyView](t)(patched[PolicyView](c, "/api/tasks/brief/policy", `{"connectors":[]}`))
	check("the task wins", send(`{"connector_ids":["mail"]}`), `["mail"]`, `[]`, "task")

	// Case 5: unknown ones are dropped with a warning, order kept, repeats removed.
	got := send(`{"connector_ids":["web","nix","mail","web",7]}`)
	if !slices.Equal(got.Own.Items(), []string{"web", "mail"}) || len(got.Warnings) != 2 || !strings.Contains(got.Warnings[0], "nix") {
		t.Errorf("unknown ones: %+v", got)
	}
	if got := must[ConnectorsView](t)(c.SetSessionConnectors(ctx, "brief", task.List[string]{})); got.Own.Declared() {
		t.Errorf("cleared through the client: %+v", got)
	}
	if _, _, body := r.raw("GET", "/api/session/backup/connectors", ""); body != `{"connector_ids":null,"effective":null,"source":"all"}`+"\n" {
		t.Errorf("the wire form is %s", body)
	}
}

func patched[T any](c *Client, path, body string) (T, error) {
	return askServer[T](c, http.MethodPatch, path, body)
}

func askServer[T any](c *Client, method, path, body string) (T, error) {
	return ask[T](ctx, c, method, path, json.RawMessage(body))
}

func TestPatchProjectThreeStates(t *testing.T) {
	r := newRig(t)
	c := r.as(operator)
	for _, step := range []struct {
		body, own, limits string
		source            policy.Source
		layer             policy.Layer
	}{
		{`{}`, "null", "null", "all", "default"},
		{`{"connector_ids":["mail"]}`, `["mail"]`, "null", "project", "default"},
		{`{"limits":{"steps":3}}`, `["mail"]`, `{"steps":3}`, "project", "override"},
		{`{"connector_ids":[],"limits":{}}`, `[]`, `{}`, "project", "override"},
		{`{"limits":null}`, `[]`, "null", "project", "default"},
		{`{"connector_ids":null}`, "null", "null", "all", "default"},
	} {
		v, err := c.PatchProject(ctx, "ops", patchOf(t, step.body))
		ok(t, err)
		again := must[ProjectView](t)(c.Project(ctx, "ops"))
		if !reflect.DeepEqual(v, again) {
			t.Errorf("%s answers %+v, GET %+v", step.body, v, again)
		}
		own := string(must[[]byte](t)(json.Marshal(v.Own)))
		if own != step.own || string(v.Limits.Value) != step.limits || v.Source != step.source || v.Limits.Layer != step.layer {
			t.Errorf("%s: own %s, limits %s from %s, source %s", step.body, own, v.Limits.Value, v.Limits.Layer, v.Source)
		}
	}
}

func patchOf(t testing.TB, body string) patch {
	t.Helper()
	var p patch
	ok(t, json.Unmarshal([]byte(body), &p))
	return p
}

// Every field of a task through its states: its file's value or default, a list or
// a value, [] where it is a list, and cleared again. The other fields stay.
func TestPatchTaskPolicyThreeStates(t *testing.T) {
	r := newRig(t)
	c := r.as(operator)
	first := must[PolicyView](t)(c.TaskPolicy(ctx, "brief"))
	if len(first) != len(taskFields)+1 { // and the ceiling, which is not the task's
		t.Fatalf("fields %v", first)
	}
	for name, values := range map[string][]string{
		"connectors":   {`["mail"]`, `[]`},
		"tools":        {`["web","mail"]`, `[]`},
		"allow":        {`["files/*"]`, `[]`, `[{"tool":"files/write_file","where":{"path":{"under":"/srv"}}}]`},
		"deny":         {`["mail/send_*"]`, `[]`},
		"on_ask":       {`"park"`, `"deny"`},
		"approval_ttl": {`"12h0m0s"`},
		"limits":       {`{"steps":5,"wall":"10m0s"}`, `{}`},
		"accept_risk":  {`"because"`, `""`},
	} {
		for _, value := range values {
			v, err := c.PatchTaskPolicy(ctx, "brief", patch{name: json.RawMessage(value)})
			ok(t, err)
			f := v[name]
			if f.Layer != policy.LayerOverride || f.By != "root" || f.ChangedAt.IsZero() || len(f.Warnings) != 0 {
				t.Errorf("%s = %s: %+v", name, value, f)
			}
			if name != "allow" && name != "deny" && string(f.Value) != value { // grants are stored in their long form
				t.Errorf("%s = %s: reads %s", name, value, f.Value)
			}
			same(t, name+" = "+value, first, v, name)
			same(t, "a patch without keys", v, must[PolicyView](t)(c.PatchTaskPolicy(ctx, "brief", patch{})), "")
		}
		v, err := c.PatchTaskPolicy(ctx, "brief", patch{name: json.RawMessage("null")})
		ok(t, err)
		same(t, name+" cleared", first, v, "")
	}
	if f := first["connectors"]; f.Effective != nil || f.Source != policy.SourceAll || string(f.Value) != "null" {
		t.Errorf("connectors at first: %+v", f)
	}
	if _, _, body := r.raw("GET", "/api/tasks/brief/policy", ""); !strings.Contains(body, `"effective":null,"source":"all"`) {
		t.Errorf("the wire form is %s", body)
	}
	must[ProjectView](t)(c.PatchProject(ctx, projectOfBrief, patchOf(t, `{"connector_ids":["web"]}`)))
	if f := must[PolicyView](t)(c.TaskPolicy(ctx, "brief"))["connectors"]; string(f.Value) != "null" || f.Effective == nil ||
		!slices.Equal(f.Effective.Items(), []string{"web"}) || f.Source != policy.SourceProject {
		t.Errorf("connectors under the project's: %+v", f)
	}
	if f := first["allow"]; f.Layer != policy.LayerFile || f.By != "files" {
		t.Errorf("allow at first: %+v", f)
	}
}

// same compares two policies but for one field.
func same(t *testing.T, step string, a, b PolicyView, but string) {
	t.Helper()
	for name := range a {
		if name == but || but == "connectors" {
			continue
		}
		if x, y := asJSON(a[name]), asJSON(b[name]); string(x) != string(y) {
			t.Errorf("%s: %s is %s, was %s", step, name, y, x)
		}
	}
}

func TestPatchOfTheWrongShape(t *testing.T) {
	r := newRig(t)
	c := r.as(operator)
	before := must[PolicyView](t)(c.TaskPolicy(ctx, "brief"))
	for _, try := range []struct {
		path, body string
		status     int
		names      string
	}{
		{"/api/tasks/brief/policy", `{"alow":[]}`, 400, "alow"},
		{"/api/tasks/brief/policy", `{"classes":{}}`, 400, "classes"},
		{"/api/tasks/brief/policy", `{"connectors":"mail"}`, 422, "connectors"},
		{"/api/tasks/brief/policy", `{"connectors":["mail/search"]}`, 422, "mail/search"},
		{"/api/tasks/brief/policy", `{"tools":["mail/search"]}`, 422, "mail/search"},
		{"/api/tasks/brief/policy", `{"allow":"files/*"}`, 422, "allow"},
		{"/api/tasks/brief/policy", `{"allow":["files"]}`, 422, "allow"},
		{"/api/tasks/brief/policy", `{"on_ask":"maybe"}`, 422, "maybe"},
		{"/api/tasks/brief/policy", `{"approval_ttl":5}`, 422, "approval_ttl"},
		{"/api/tasks/brief/policy", `{"limits":{"stepps":1}}`, 422, "stepps"},
		{"/api/tasks/brief/policy", `{"limits":{"steps":-1}}`, 422, "limits"},
		{"/api/tasks/brief/policy", `{"deny":["mail/*"],"on_ask":7}`, 422, "on_ask"},
		{"/api/tasks/brief/policy", `{"deny":[],"deny":null}`, 400, "deny is given twice"},
		{"/api/session/brief/connectors", `{"connectors":[]}`, 400, "connectors"},
		{"/api/session/brief/connectors", `{"connector_ids":"mail"}`, 422, "connectors"},
		{"/api/session/nix/connectors", `{"connector_ids":[]}`, 404, "nix"},
		{"/api/projects/ops", `{"allow":[]}`, 400, "allow"},
		{"/api/projects/ops", `{"limits":[]}`, 422, "limits"},
		{"/api/projects/nix", `{"limits":{}}`, 404, "nix"},
		{"/api/tasks/nix/policy", `{"allow":[]}`, 404, "nix"},
	} {
		_, err := patched[any](c, try.path, try.body)
		e := answerFor(err)
		if err == nil || e.Status != try.status || !strings.Contains(e.Message, try.names) {
			t.Errorf("%s %s: %v, want %d naming %q", try.path, try.body, err, try.status, try.names)
		}
	}
	same(t, "after refusals", before, must[PolicyView](t)(c.TaskPolicy(ctx, "brief")), "")

	// Case 2: a `tools` of the wrong type counts as absent, with a warning.
	must[PolicyView](t)(patched[PolicyView](c, "/api/tasks/brief/policy", `{"tools":["mail"]}`))
	v := must[PolicyView](t)(patched[PolicyView](c, "/api/tasks/brief/policy", `{"tools":"memory"}`))
	if f := v["tools"]; string(f.Value) != "null" || f.Layer != policy.LayerDefault || len(f.Warnings) != 1 {
		t.Errorf("tools of the wrong type: %+v", f)
	}
}

// A store that fails is the daemon's trouble, not the value's.
func TestPatchWithAFailingStore(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Policies = failing{o.Policies.(*taskpolicy.Store)} })
	_, err := r.as(operator).PatchTaskPolicy(ctx, "brief", patch{"tools": json.RawMessage(`[]`)})
	refusedWith(t, err, http.StatusInternalServerError, CodeInternal)
}

type failing struct{ *taskpolicy.Store }

type driverError struct{}

func (driverError) Error() string { return "disk I/O error" }
func (driverError) Code() int     { return 10 }

func (failing) Set(ctxT, taskpolicy.Change) ([]string, error) { return nil, driverError{} }

func TestToolSupport(t *testing.T) {
	r := newRig(t)
	if v := must[ToolSupport](t)(r.as(operator).ToolSupport(ctx, "brief")); v.Supported != "unknown" || v.Mode != nil || v.Reason == "" {
		t.Errorf("support %+v", v)
	}
	mode := "none"
	r2 := newRig(t, func(o *Options) {
		o.ToolSupport = func(_ ctxT, session string) (ToolSupport, error) {
			if session == "backup" {
				return ToolSupport{}, driverError{}
			}
			return ToolSupport{Supported: false, Mode: &mode, Reason: "text only"}, nil
		}
	})
	if v := must[ToolSupport](t)(r2.as(operator).ToolSupport(ctx, "brief")); v.Supported != false || v.Mode == nil || *v.Mode != "none" {
		t.Errorf("support %+v", v)
	}
	if v := must[ToolSupport](t)(r2.as(operator).ToolSupport(ctx, "backup")); v.Supported != "unknown" {
		t.Errorf("a failed look-up: %+v", v)
	}
}

// Whatever the body of a PATCH is, it is either taken or refused with a 4xx, and
// refused means unchanged.
func FuzzPatch(f *testing.F) {
	r := newStores(f)
	r.build()
	for _, body := range []string{
		`{}`, `null`, `{"tools":null}`, `{"tools":"memory"}`, `{"tools":["mail",1]}`, `{"connectors":[]}`, `{"allow":["files/*"],"on_ask":"park"}`,
		`{"limits":{"steps":1,"cost":1e400}}`, `{"allow":[{"tool":"files/x","where":{"p":{"in":[{}]}}}]}`, `{"deny":[],"deny":[]}`, "{\"accept_risk\":\"\\u0000\"}",
	} {
		f.Add(0, body)
		f.Add(1, body)
		f.Add(2, strings.ReplaceAll(body, "connectors", "connector_ids"))
	}
	paths := []string{"/api/tasks/brief/policy", "/api/session/brief/connectors", "/api/projects/ops"}
	request := func(method, path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		req := httptest.NewRequest(method, path, strings.NewReader(body))
		r.server.serveHTTP(w, req.WithContext(withPeer(req.Context(), operator)))
		return w
	}
	f.Fuzz(func(t *testing.T, which int, body string) {
		path := paths[uint(which)%uint(len(paths))]
		before := request(http.MethodGet, path, "")
		if before.Code != http.StatusOK {
			t.Fatalf("GET %s: %d %s", path, before.Code, before.Body)
		}
		answer := request(http.MethodPatch, path, body)
		after := request(http.MethodGet, path, "")
		switch {
		case answer.Code == http.StatusOK:
			if after.Code != http.StatusOK {
				t.Errorf("PATCH %s %q was taken and made GET %d %s", path, body, after.Code, after.Body)
			}
		case answer.Code < 400 || answer.Code >= 500:
			t.Errorf("PATCH %s %q: %d %s", path, body, answer.Code, answer.Body)
		case before.Body.String() != after.Body.String():
			t.Errorf("PATCH %s %q was refused and changed\n%s to\n%s", path, body, before.Body, after.Body)
		}
	})
}
