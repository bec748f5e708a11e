package openai

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"runnerd/llm/internal/wire"
)

// growing are the unknown fields of a message as they stream in.
type growing map[string]*value

// merge adds a delta's fields to what came before; known fields are left out.
func (g growing) merge(delta object, known ...string) {
	for k, raw := range delta {
		if slices.Contains(known, k) || wire.IsNull(raw) {
			continue
		}
		if g[k] == nil {
			g[k] = &value{}
		}
		g[k].add(raw)
	}
}

func (g growing) object() object {
	if len(g) == 0 {
		return nil
	}
	o := object{}
	for k, v := range g {
		o[k] = v.encode()
	}
	return o
}

// value is one field as it grows: strings and lists grow, anything else is
// replaced by what comes later. The time it takes is linear in what comes.
type value struct {
	text   *strings.Builder
	list   []*value
	isList bool
	fields growing // an entry of a list that later entries may continue
	raw    json.RawMessage
}

func (v *value) add(raw json.RawMessage) {
	var s string
	var items []json.RawMessage
	switch {
	case raw[0] == '"' && json.Unmarshal(raw, &s) == nil:
		if v.text == nil {
			*v = value{text: &strings.Builder{}}
		}
		v.text.WriteString(s)
	case raw[0] == '[' && json.Unmarshal(raw, &items) == nil:
		if !v.isList {
			*v = value{isList: true}
		}
		for _, item := range items {
			v.addItem(item)
		}
	default:
		*v = value{raw: bytes.Clone(raw)}
	}
}

// addItem appends to a list. An object of the same type and index as the entry
// before it continues that entry: routers stream reasoning so.
func (v *value) addItem(raw json.RawMessage) {
	var o object
	if json.Unmarshal(raw, &o) != nil || wire.IsNull(o["index"]) {
		v.list = append(v.list, &value{raw: bytes.Clone(raw)})
		return
	}
	if n := len(v.list); n > 0 && v.list[n-1].continues(o) {
		v.list[n-1].addFields(o)
		return
	}
	entry := &value{fields: growing{}}
	entry.addFields(o)
	v.list = append(v.list, entry)
}

func (v *value) continues(o object) bool {
	if v.fields == nil {
		return false
	}
	for _, k := range []string{"index", "type"} {
		var have json.RawMessage
		if f := v.fields[k]; f != nil {
			have = f.encode()
		}
		if !bytes.Equal(have, o[k]) {
			return false
		}
	}
	return true
}

// addFields lets the fields that stream in pieces grow and replaces the others.
func (v *value) addFields(o object) {
	for k, raw := range o {
		if wire.IsNull(raw) && v.fields[k] != nil {
			continue
		}
		if v.fields[k] == nil || (k != "text" && k != "summary") {
			v.fields[k] = &value{}
		}
		v.fields[k].add(raw)
	}
}

func (v *value) encode() json.RawMessage {
	switch {
	case v.text != nil:
		return wire.JSON(v.text.String())
	case v.isList:
		items := []json.RawMessage{}
		for _, item := range v.list {
			items = append(items, item.encode())
		}
		return wire.JSON(items)
	case v.fields != nil:
		return wire.JSON(v.fields.object())
	}
	return v.raw
}
