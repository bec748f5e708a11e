package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds on one file. An alias counts as often as it is used, so that a small
// file cannot unfold into a large one.
const (
	maxFile  = 1 << 20
	maxNodes = 20_000
	maxDepth = 40
)

// place is where a value and the key that leads to it stand.
type place struct{ key, value mark }

// tree is a file as plain values (map[string]any, []any, string, json.Number,
// bool, nil) with the place of each, by JSON pointer.
type tree struct {
	src      source
	value    any
	places   map[string]place
	problems []Problem
	nodes    int
	over     bool
}

func newTree(src source, root *yaml.Node) *tree {
	t := &tree{src: src, places: make(map[string]place)}
	if root == nil {
		t.places[""] = place{mark{int32(src.firstLine), 1}, mark{int32(src.firstLine), 1}}
		t.value = map[string]any{}
		return t
	}
	t.places[""] = place{t.mark(root), t.mark(root)}
	t.value = t.convert(root, "", 0)
	return t
}

func (t *tree) mark(n *yaml.Node) mark {
	return mark{int32(n.Line + t.src.firstLine - 1), int32(n.Column)}
}

func (t *tree) complain(n *yaml.Node, what, expected, hint string) {
	t.problems = append(t.problems, t.src.problem(t.mark(n), what, expected, hint))
}

// convert returns the plain value of n, bounded in depth and in number.
func (t *tree) convert(n *yaml.Node, pointer string, depth int) any {
	t.nodes++
	if t.nodes > maxNodes || depth > maxDepth {
		if !t.over {
			t.over = true
			t.complain(n, "too much nesting or too many values", fmt.Sprintf("at most %d values, %d deep, each use of an alias counted", maxNodes, maxDepth), "")
		}
		return nil
	}
	switch n.Kind {
	case yaml.AliasNode:
		return t.convert(n.Alias, pointer, depth+1)
	case yaml.MappingNode:
		return t.mapping(n, pointer, depth)
	case yaml.SequenceNode:
		return t.sequence(n, pointer, depth)
	}
	return t.scalar(n)
}

func (t *tree) sequence(n *yaml.Node, pointer string, depth int) any {
	list := make([]any, 0, len(n.Content))
	for i, item := range n.Content {
		p := pointer + "/" + strconv.Itoa(i)
		t.places[p] = place{t.mark(item), t.mark(item)}
		list = append(list, t.convert(item, p, depth+1))
		if t.over {
			break
		}
	}
	return list
}

func (t *tree) mapping(n *yaml.Node, pointer string, depth int) any {
	m := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content) && !t.over; i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Kind != yaml.ScalarNode:
			t.complain(n.Content[i], "a key that is a list or a mapping", "a plain name", "")
			continue
		case key.ShortTag() == "!!merge":
			t.complain(n.Content[i], "merge keys (<<) are not read", "each key written out", "an alias (*name) may stand for a whole value")
			continue
		}
		p := pointer + "/" + escapePointer(key.Value)
		if old, ok := t.places[p]; ok {
			t.complain(n.Content[i], fmt.Sprintf("duplicate key %s", quoted(key.Value)), "each key once", fmt.Sprintf("it is already set at line %d", old.key.line))
			continue
		}
		t.places[p] = place{t.mark(n.Content[i]), t.mark(value)}
		m[key.Value] = t.convert(value, p, depth+1)
	}
	return m
}

// plainNumber are the forms of a number that everybody reads alike.
var plainNumber = regexp.MustCompile(`^[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$`)

// scalar refuses the forms of YAML that mean something else than they look
// like: 012 (octal ten), 019, 0x1f, 1_000, .inf, tags of one's own.
func (t *tree) scalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		if n.Style == 0 && likeNumber(n.Value) {
			return t.number(n)
		}
		return n.Value
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int", "!!float":
		return t.number(n)
	}
	t.complain(n, fmt.Sprintf("tag %s is not read", quoted(n.Tag)), "a plain value", "")
	return n.Value
}

// likeNumber tells whether a text without quotes may be meant as a number that the
// library does not take for one: 1e999.
func likeNumber(text string) bool {
	_, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	return strings.ContainsAny(text, "0123456789") && (err == nil || errors.Is(err, strconv.ErrRange))
}

// number keeps the digits as they are written, so that a decimal stays exact.
func (t *tree) number(n *yaml.Node) any {
	what := ""
	if _, err := strconv.ParseFloat(n.Value, 64); !plainNumber.MatchString(n.Value) {
		what = fmt.Sprintf("number %s is not in plain decimal form", n.Value)
	} else if err != nil {
		what = fmt.Sprintf("number %s is too large", n.Value)
	}
	if what != "" {
		t.complain(n, what, "a decimal number", "put it in quotes if it is text")
		return n.Value
	}
	return json.Number(inJSON(n.Value))
}

// inJSON is a plain number as JSON writes it: no sign before a positive one, digits on
// both sides of a point.
func inJSON(text string) string {
	text = strings.TrimPrefix(text, "+")
	if whole, rest, found := strings.Cut(text, "."); found {
		if whole == "" || whole == "-" {
			whole += "0"
		}
		if rest == "" || strings.IndexByte("eE", rest[0]) >= 0 {
			return whole + rest
		}
		return whole + "." + rest
	}
	return text
}

// at is the place of the value at the path, or of the nearest that exists above.
func (t *tree) at(path ...string) mark { return t.place(path).value }

// keyAt is the place of the key at the path, or of the nearest above.
func (t *tree) keyAt(path ...string) mark { return t.place(path).key }

func (t *tree) place(path []string) place {
	for n := len(path); n > 0; n-- {
		if p, ok := t.places[pointerOf(path[:n])]; ok {
			return p
		}
	}
	return t.places[""]
}

// has tells whether the file says anything at the path, valid or not.
func (t *tree) has(path ...string) bool {
	_, ok := t.places[pointerOf(path)]
	return ok
}

func pointerOf(path []string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteByte('/')
		b.WriteString(escapePointer(p))
	}
	return b.String()
}

func escapePointer(s string) string {
	if !strings.ContainsAny(s, "~/") {
		return s
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}
