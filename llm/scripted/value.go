package scripted

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

func (p *parser) list(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		p.fail(n, "%s: want a list", what)
		return nil
	}
	for _, item := range n.Content {
		if item.Kind == yaml.AliasNode {
			p.fail(item, "%s: aliases are not supported: write the value out", what)
			return nil
		}
	}
	return n.Content
}

func (p *parser) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		p.fail(n, "%s: want a string", what)
		return ""
	}
	return n.Value
}

// texts reads one string or a list of them.
func (p *parser) texts(n *yaml.Node, what string) []string {
	if n.Kind == yaml.ScalarNode {
		return []string{p.text(n, what)}
	}
	texts := []string{}
	for _, item := range p.list(n, what) {
		texts = append(texts, p.text(item, what))
	}
	return texts
}

func (p *parser) oneOf(n *yaml.Node, what string, values ...string) string {
	v := p.text(n, what)
	if v != "" && !slices.Contains(values, v) {
		p.fail(n, "%s: %q is not known: want one of %s", what, v, strings.Join(values, ", "))
		return ""
	}
	return v
}

func (p *parser) number(n *yaml.Node, what string, max int64) int64 {
	v, err := strconv.ParseInt(p.text(n, what), 10, 64)
	if err != nil || v < 0 || v > max {
		p.fail(n, "%s: want a whole number from 0 to %d", what, max)
		return 0
	}
	return v
}

// args turns a YAML mapping into a JSON object, its keys in the file's order.
func (p *parser) args(n *yaml.Node) string {
	if n.Kind != yaml.MappingNode {
		p.fail(n, "args: want a mapping; for arguments that are no object write `raw:`")
		return ""
	}
	var b bytes.Buffer
	p.writeJSON(&b, n)
	return b.String()
}

func (p *parser) writeJSON(b *bytes.Buffer, n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		b.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				b.WriteByte(',')
			}
			if n.Content[i].Kind != yaml.ScalarNode {
				p.fail(n.Content[i], "args: want a string as key")
			}
			writeString(b, n.Content[i].Value)
			b.WriteByte(':')
			p.writeJSON(b, n.Content[i+1])
		}
		b.WriteByte('}')
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			p.writeJSON(b, item)
		}
		b.WriteByte(']')
	case yaml.ScalarNode:
		p.writeScalar(b, n)
	default:
		p.fail(n, "args: aliases are not supported: write the value out")
	}
}

// writeScalar keeps numbers as they are written where JSON allows it.
func (p *parser) writeScalar(b *bytes.Buffer, n *yaml.Node) {
	switch n.Tag {
	case "!!null":
		b.WriteString("null")
	case "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			p.fail(n, "args: %v", err)
			return
		}
		if json.Valid([]byte(n.Value)) {
			b.WriteString(n.Value)
			return
		}
		data, err := json.Marshal(v)
		if err != nil {
			p.fail(n, "args: %s has no form in JSON: quote it or write `raw:`", n.Value)
			return
		}
		b.Write(data)
	default:
		writeString(b, n.Value)
	}
}

func writeString(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always has a form in JSON
	b.Truncate(b.Len() - 1)
}
