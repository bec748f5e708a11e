package control

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"runnerd/task"
)

// Spec is a task as the API shows it. Like every duration of the API, its durations
// are seconds.
type Spec struct{ task.Task }

// MarshalJSON writes durations in seconds.
func (s Spec) MarshalJSON() ([]byte, error) { return convert(s.Task, toSeconds) }

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Spec) UnmarshalJSON(data []byte) error {
	data, err := converted(data, reflect.TypeFor[task.Task](), fromSeconds)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, &s.Task)
}

func toSeconds(n json.Number) any {
	ns, err := n.Int64()
	if err != nil {
		return n
	}
	return time.Duration(ns).Seconds()
}

func fromSeconds(n json.Number) any {
	s, err := n.Float64()
	if err != nil {
		return n
	}
	return time.Duration(s * float64(time.Second))
}

// convert writes v as JSON with each of its durations put through change.
func convert(v any, change func(json.Number) any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return converted(data, reflect.TypeOf(v), change)
}

func converted(data []byte, t reflect.Type, change func(json.Number) any) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber() // exact
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	return json.Marshal(durations(t, tree, change))
}

// durations puts what is of type time.Duration in t, as JSON has it in tree, through
// change.
func durations(t reflect.Type, tree any, change func(json.Number) any) any {
	switch v := tree.(type) {
	case json.Number:
		if t == reflect.TypeFor[time.Duration]() {
			return change(v)
		}
	case []any:
		for i := range v {
			if t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
				v[i] = durations(t.Elem(), v[i], change)
			}
		}
	case map[string]any:
		if t.Kind() != reflect.Struct {
			break
		}
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if part, ok := v[name]; ok && name != "" {
				v[name] = durations(f.Type, part, change)
			}
		}
	}
	return tree
}
