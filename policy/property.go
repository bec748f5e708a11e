package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxSchemaSteps bounds how far references and alternatives are followed when a
// schema is asked about one argument.
const maxSchemaSteps = 64

// property is what a tool's schema says of one argument. The zero property knows
// nothing.
type property struct {
	name  string
	of    *argumentSchema
	nodes []*jsonschema.Schema // all of which hold
}

// tops are the schemas that the arguments as a whole have to fit, all of them.
func (a *argumentSchema) tops() []*jsonschema.Schema {
	if a.err != nil || a.schema == nil {
		return nil
	}
	return conjunction(a.schema)
}

// conjunction is the schema and all that holds with it, references followed.
func conjunction(s *jsonschema.Schema) []*jsonschema.Schema {
	list := []*jsonschema.Schema{s}
	for i := 0; i < len(list) && len(list) < maxSchemaSteps; i++ {
		for _, more := range append(slices.Clone(list[i].AllOf), list[i].Ref) {
			if more != nil && !slices.Contains(list, more) {
				list = append(list, more)
			}
		}
	}
	return list
}

// names are the arguments that the schema lists, sorted.
func (a *argumentSchema) names() []string {
	var names []string
	for _, s := range a.tops() {
		for name := range s.Properties {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// required are the arguments without which no call fits, sorted.
func (a *argumentSchema) required() []string {
	var names []string
	for _, s := range a.tops() {
		names = append(names, s.Required...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// lists tells whether a call may have the argument: true as well where the schema
// has alternatives, patterns or nothing to say, which are not looked into.
func (a *argumentSchema) lists(name string) bool {
	tops, known := a.tops(), a.names()
	if len(known) == 0 || slices.Contains(known, name) {
		return !slices.ContainsFunc(tops, func(s *jsonschema.Schema) bool { return closes(s) && s.Properties[name] == nil })
	}
	return slices.ContainsFunc(tops, func(s *jsonschema.Schema) bool {
		additional, isSchema := s.AdditionalProperties.(*jsonschema.Schema)
		return isSchema && additional != nil || len(s.PatternProperties) > 0 || len(s.AnyOf) > 0 || len(s.OneOf) > 0 || s.If != nil
	})
}

func closes(s *jsonschema.Schema) bool {
	open, isBool := s.AdditionalProperties.(bool)
	return isBool && !open && len(s.PatternProperties) == 0
}

func (a *argumentSchema) property(name string) property {
	p := property{name: name, of: a}
	for _, s := range a.tops() {
		if node := s.Properties[name]; node != nil {
			p.nodes = append(p.nodes, conjunction(node)...)
		}
	}
	return p
}

// types are the JSON types that a value may have, nil for any. Whole numbers are
// numbers.
func (p property) types() []string { return typesOf(p.nodes, 0) }

func typesOf(nodes []*jsonschema.Schema, depth int) []string {
	var allowed []string
	narrow := func(list []string) {
		if allowed == nil || list == nil {
			allowed = append(allowed, list...)
			return
		}
		allowed = slices.DeleteFunc(allowed, func(t string) bool { return !slices.Contains(list, t) })
	}
	for _, s := range nodes {
		if s.Types != nil {
			narrow(numbers(s.Types.ToStrings()))
		}
		if s.Enum != nil {
			narrow(typesOfValues(s.Enum.Values))
		}
		if s.Const != nil {
			narrow(typesOfValues([]any{*s.Const}))
		}
		for _, choice := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
			if len(choice) > 0 && depth < 8 {
				narrow(unionOf(choice, depth+1))
			}
		}
	}
	return allowed
}

// unionOf is what one of the alternatives allows, nil if one allows any.
func unionOf(choice []*jsonschema.Schema, depth int) []string {
	var all []string
	for _, s := range choice {
		list := typesOf(conjunction(s), depth)
		if list == nil {
			return nil
		}
		all = append(all, list...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func numbers(types []string) []string {
	list := []string{}
	for _, t := range types {
		if t == "integer" {
			t = "number"
		}
		list = append(list, t)
	}
	return list
}

func typesOfValues(values []any) []string {
	list := []string{}
	for _, v := range values {
		list = append(list, schemaType(v))
	}
	return list
}

// schemaType is the type of a value in the words of JSON Schema.
func schemaType(v any) string {
	switch typeOf(v) {
	case "a boolean":
		return "boolean"
	case "a string":
		return "string"
	case "a number":
		return "number"
	case "an array":
		return "array"
	case "an object":
		return "object"
	}
	return "null"
}

// admits tells whether the schema takes the value for the argument.
func (p property) admits(value any) bool {
	return !slices.ContainsFunc(p.nodes, func(s *jsonschema.Schema) bool {
		err := p.of.fits(s, value)
		return err != nil && !errors.Is(err, errSchema)
	})
}

// admitsNone says why no call has one of the values of a condition.
func (j judge) admitsNone(p property, key string, values []any) (why, cure string) {
	if why, cure = p.admitsNone(key, values); why != "" {
		return why, cure
	}
	return j.reachesNone(p, values)
}

// admitsNone says why none of the values of a condition fits the schema.
func (p property) admitsNone(key string, values []any) (why, cure string) {
	if len(p.nodes) == 0 || slices.ContainsFunc(values, p.admits) {
		return "", ""
	}
	why = fmt.Sprintf("%s is no value that the tool's schema takes%s", valueText(values[0]), p.wants())
	types := p.types()
	switch {
	case len(types) == 1 && types[0] == "number" && rationalText(values[0]):
		cure = "write it without quotes"
	case slices.Equal(types, []string{"string"}) && schemaType(values[0]) != "string":
		cure = "put it in quotes"
	case slices.Equal(types, []string{"array"}) && schemaType(values[0]) != "array":
		cure = "a list is compared as a whole: " + key + ": [" + valueText(values[0]) + "]"
		if key == "in" {
			cure = "a list is compared as a whole: in: [[" + valueText(values[0]) + "]]"
		}
	}
	return why, cure
}

func rationalText(v any) bool {
	text, ok := v.(string)
	return ok && rational(Number(text)) != nil
}

// wants words the values that the schema takes, or their types.
func (p property) wants() string {
	words := p.types()
	if values := p.values(); len(values) > 0 && len(values) <= 8 {
		words = nil
		for _, v := range values {
			words = append(words, valueText(v))
		}
	} else if i := slices.Index(words, "number"); i >= 0 && slices.ContainsFunc(p.nodes, wholeOnly) {
		words[i] = "integer"
	}
	if len(words) == 0 {
		return ""
	}
	return " (it wants " + strings.Join(words, " or ") + ")"
}

func wholeOnly(s *jsonschema.Schema) bool {
	return s.Types != nil && slices.Contains(s.Types.ToStrings(), "integer") && !slices.Contains(s.Types.ToStrings(), "number")
}

// values are those that the schema lists, nil if it does not.
func (p property) values() []any {
	for _, s := range p.nodes {
		if s.Enum != nil {
			return s.Enum.Values
		} else if s.Const != nil {
			return []any{*s.Const}
		}
	}
	return nil
}

// beyond says why no number that the schema takes is within a bound; side is 1 for
// a lower one, -1 for an upper.
func (p property) beyond(bound Number, side int) (why, cure string) {
	b := rational(bound)
	for _, s := range p.nodes {
		limit, words := s.Maximum, "above"
		if side < 0 {
			limit, words = s.Minimum, "below"
		}
		if b != nil && limit != nil && b.Cmp(limit) == side {
			return fmt.Sprintf("the tool's schema takes nothing %s %s", words, limit.RatString()), ""
		}
	}
	return "", ""
}

func withArticle(noun string) string {
	if strings.HasPrefix(noun, "a") {
		return "an " + noun
	}
	return "a " + noun
}

var (
	withScheme = []string{"uri", "iri", "url", "uri-template"}
	speaksHTTP = regexp.MustCompile(`(?i)\bhttps?\b`)
)

// noURL says why host can match no value: the schema asks for something that is
// not written with http:// or https://.
func (p property) noURL() (why, cure string) {
	const how = "write the exact values with eq or in"
	for _, s := range p.nodes {
		values := []any{}
		if s.Enum != nil {
			values = s.Enum.Values
		} else if s.Const != nil {
			values = []any{*s.Const}
		}
		if f := formatOf(s); f != "" && !slices.Contains(withScheme, f) {
			return "host takes URLs with http:// or https://, and the tool's schema wants format " + f, how
		}
		if len(values) > 0 && !slices.ContainsFunc(values, hasScheme) {
			return "host takes URLs with http:// or https://, and no value of the tool's schema is one", how
		}
	}
	return "", ""
}

// maybeNoURL says why host may match no value: the schema does not say that the
// argument is written with its scheme, or shows values that are not.
func (p property) maybeNoURL() string {
	for _, s := range p.nodes {
		examples := slices.Clone(s.Examples)
		if s.Default != nil {
			examples = append(examples, *s.Default)
		}
		if len(examples) > 0 && !slices.ContainsFunc(examples, hasScheme) {
			return "its schema shows " + valueText(examples[0])
		}
		pattern := ""
		if s.Pattern != nil {
			pattern = s.Pattern.String()
		}
		if slices.Contains(withScheme, formatOf(s)) || len(examples) > 0 || speaksHTTP.MatchString(s.Description+" "+s.Title+" "+pattern) {
			return ""
		}
	}
	return "its schema does not say that it has one"
}

func hasScheme(v any) bool {
	text, ok := v.(string)
	return ok && (strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://"))
}

func formatOf(s *jsonschema.Schema) string {
	if s.Format == nil {
		return ""
	}
	return s.Format.Name
}

// narrow tells whether every value that the schema and the condition admit is one
// of a few: it cannot carry data out.
func (p property) narrow(c Condition) bool {
	for _, s := range p.nodes {
		if s.Enum != nil || s.Const != nil {
			return true
		}
	}
	types := p.types()
	if types == nil {
		return false
	}
	bounded := c.Min != "" && c.Max != ""
	return !slices.ContainsFunc(types, func(t string) bool { return t != "boolean" && t != "null" && !(t == "number" && bounded) })
}
