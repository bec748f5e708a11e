package control

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"runnerd/task"
)

// TestDurationsAreSeconds is friction line 9: no duration of the API is in
// nanoseconds, and a client reads back what the daemon has.
func TestDurationsAreSeconds(t *testing.T) {
	spec := Spec{task.Task{ID: "a", CatchUpWindow: 24 * time.Hour, Jitter: 1500 * time.Millisecond, Retry: task.Retry{Attempts: 2, Backoff: time.Minute},
		Deliver: []task.Delivery{{To: "file", Timeout: 30 * time.Second}}}}
	data, err := json.Marshal(TaskView{Spec: &spec})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"catch_up_window":86400`, `"jitter":1.5`, `"backoff":60`, `"timeout":30`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %s in %s", want, data)
		}
	}
	var back TaskView
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back.Spec.Task, spec.Task) {
		t.Errorf("read back: %+v, %v", back.Spec, err)
	}
	row, err := json.Marshal(NewRunRow(task.Run{Wall: 1500 * time.Millisecond}))
	if err != nil || !strings.Contains(string(row), `"wall":1.5`) {
		t.Errorf("run: %s, %v", row, err)
	}
}

// TestNoDurationIsPlain looks at every type that the API writes.
func TestNoDurationIsPlain(t *testing.T) {
	for _, v := range []any{RunView{}, TaskView{}, StatusView{}, WhyRow{}, ApprovalView{}, ConnectorRow{}, ToolRow{}, DiffRow{}, PauseView{}, ReloadView{}, Event{}} {
		if at := plainDuration(reflect.TypeOf(v), map[reflect.Type]bool{}); at != "" {
			t.Errorf("%T%s is a time.Duration, which JSON has in nanoseconds", v, at)
		}
	}
}

func plainDuration(t reflect.Type, seen map[reflect.Type]bool) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return " "
	case seen[t] || t == reflect.TypeFor[Spec]() || t == reflect.TypeFor[time.Time]():
		return ""
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
		return plainDuration(t.Elem(), seen)
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			if at := plainDuration(f.Type, seen); at != "" && f.IsExported() && f.Tag.Get("json") != "-" {
				return "." + f.Name + at
			}
		}
	}
	return ""
}
