package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	failure "github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// violation is a problem that a schema found and the path it concerns.
type violation struct {
	problem Problem
	path    []string
	unknown bool // an unknown key
	missing bool // a key that is not there
}

// violations checks the tree against the schema and words every complaint.
func (c *checker) violations(t *tree) []violation {
	err := c.schema.Validate(t.value)
	if err == nil {
		return nil
	}
	var ve *jsonschema.ValidationError
	if !errors.As(err, &ve) {
		return []violation{{problem: t.src.problem(t.at(), err.Error(), "", "")}}
	}
	var list []violation
	c.walk(t, ve, &list)
	return firstOfEach(list)
}

// firstOfEach keeps one complaint about each value: one of the wrong type is
// not also an unknown choice.
func firstOfEach(list []violation) []violation {
	seen := make(map[string]bool)
	return slices.DeleteFunc(list, func(v violation) bool {
		key := pointerOf(v.path)
		if v.missing {
			key += "\x00" + v.problem.What
		}
		dup := seen[key]
		seen[key] = true
		return dup
	})
}

func (c *checker) walk(t *tree, e *jsonschema.ValidationError, list *[]violation) {
	if len(e.Causes) > 0 {
		for _, cause := range e.Causes {
			c.walk(t, cause, list)
		}
		return
	}
	path := e.InstanceLocation
	switch k := e.ErrorKind.(type) {
	case *failure.AdditionalProperties:
		for _, name := range k.Properties {
			*list = append(*list, c.unknownKey(t, path, name))
		}
	case *failure.FalseSchema:
		if n := len(path); n > 0 {
			*list = append(*list, c.unknownKey(t, path[:n-1], path[n-1]))
		}
	case *failure.Required:
		for _, name := range k.Missing {
			p := t.src.problem(t.at(path...), fmt.Sprintf("%smissing key %q", where(path), name), "", "")
			*list = append(*list, violation{problem: p, path: path, missing: true})
		}
	default:
		what, expected, hint := c.words(e)
		p := t.src.problem(t.at(path...), where(path)+what, expected, hint)
		*list = append(*list, violation{problem: p, path: path})
	}
}

func (c *checker) unknownKey(t *tree, path []string, name string) violation {
	known := keysAt(c.schema, path)
	expected := ""
	switch {
	case len(known) == 0:
	case len(known) <= 14:
		expected = "one of " + strings.Join(known, ", ")
	default:
		expected = "one of the keys that `runnerd schema` lists"
	}
	full := append(slices.Clone(path), name)
	p := t.src.problem(t.keyAt(full...), fmt.Sprintf("%sunknown key %s", where(path), quoted(name)), expected, didYouMean(name, known))
	return violation{problem: p, path: full, unknown: true}
}

// where names the value a complaint is about: "limits.steps: ".
func where(path []string) string {
	var b strings.Builder
	for _, p := range path {
		if _, err := strconv.Atoi(p); err == nil && b.Len() > 0 {
			b.WriteString("[" + p + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(printable(p))
	}
	if b.Len() == 0 {
		return ""
	}
	return b.String() + ": "
}

// printable keeps a key from a file from writing control characters.
func printable(s string) string {
	q := quoted(s)
	if q == `"`+s+`"` {
		return s
	}
	return q
}

// words says what is wrong with a value, what belongs there and what to do.
func (c *checker) words(e *jsonschema.ValidationError) (what, expected, hint string) {
	switch k := e.ErrorKind.(type) {
	case *failure.Type:
		return typeWords(k)
	case *failure.Enum:
		return enumWords(k)
	case *failure.Pattern:
		return "unreadable value " + quoted(k.Got), expectedPattern(k.Want), ""
	case *failure.MinLength:
		return "empty string", "some text", "leave the key out to say nothing"
	case *failure.MinItems:
		return "empty list", "at least one entry", ""
	case *failure.MinProperties:
		return "nothing is said here", "at least one key", ""
	case *failure.Minimum:
		return fmt.Sprintf("%s is too small", k.Got.RatString()), "at least " + k.Want.RatString(), ""
	case *failure.Maximum:
		if k.Want.Sign() == 0 {
			return fmt.Sprintf("%s has no unit", k.Got.RatString()), expectedDuration, "did you mean " + k.Got.RatString() + "s?"
		}
		return fmt.Sprintf("%s is too large", k.Got.RatString()), "at most " + k.Want.RatString(), ""
	case *failure.PropertyNames:
		return "bad name " + quoted(k.Property), "", ""
	}
	return strings.Join(e.ErrorKind.KeywordPath(), ".") + " is not satisfied", "", ""
}

var typeNames = map[string]string{
	"string": "text", "array": "a list", "object": "a mapping of keys", "integer": "a whole number",
	"number": "a number", "boolean": "true or false", "null": "no value",
}

func typeWords(k *failure.Type) (what, expected, hint string) {
	want := make([]string, len(k.Want))
	for i, w := range k.Want {
		want[i] = typeNames[w]
	}
	expected = oneOf(want)
	if slices.Equal(k.Want, []string{"string", "integer"}) {
		expected = `text such as "30s" or "500MB"`
	}
	switch {
	case k.Got == "null" && slices.Contains(k.Want, "array"):
		hint = "leave the key out to say nothing, or write [] for none"
	case k.Got == "null":
		hint = "leave the key out to say nothing"
	case k.Want[0] == "string" && (k.Got == "number" || k.Got == "boolean"):
		hint = "put it in quotes"
	case slices.Equal(k.Want, []string{"array"}) && k.Got == "string":
		hint = "write [value], also for one"
	}
	got := typeNames[k.Got]
	if k.Got == "null" {
		return "no value", expected, hint
	}
	return "wrong type: " + got, expected, hint
}

func enumWords(k *failure.Enum) (what, expected, hint string) {
	names := make([]string, len(k.Want))
	for i, w := range k.Want {
		names[i] = fmt.Sprint(w)
	}
	got := fmt.Sprint(k.Got)
	return "unknown value " + quoted(got), oneOf(names), didYouMean(got, names)
}

// expectedPattern words the patterns that our own schemas use.
func expectedPattern(pattern string) string {
	switch pattern {
	case durationPattern:
		return expectedDuration
	case sizePattern:
		return expectedSize
	case conditionPattern:
		return "any, absent, or a mapping such as {eq: …}"
	case rootPattern:
		return "an absolute path"
	}
	return "text that matches " + pattern
}
