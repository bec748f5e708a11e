package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	schemagen "github.com/google/jsonschema-go/jsonschema"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"runnerd/policy"
)

// kind is a kind of file.
type kind string

const (
	kindTask       kind = "task"
	kindModels     kind = "models"
	kindConnectors kind = "connectors"
	kindProjects   kind = "projects"
	kindDaemon     kind = "runnerd"
)

// Kinds are the names that Schema knows.
func Kinds() []string {
	return []string{string(kindTask), string(kindModels), string(kindConnectors), string(kindProjects), string(kindDaemon)}
}

// Schema returns the JSON Schema of a kind of file, for editors and for
// `runnerd schema`. It is the schema that files are checked against.
func Schema(name string) ([]byte, error) {
	c, ok := compiled[kind(name)]
	if !ok {
		return nil, fmt.Errorf("schema %s: want one of %s", quoted(name), strings.Join(Kinds(), ", "))
	}
	k, err := c()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, k.text, "", "  "); err != nil {
		return nil, fmt.Errorf("schema %s: %w", name, err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// checker is a schema ready for use.
type checker struct {
	text   []byte
	schema *jsonschema.Schema
}

// compiled builds each schema once, on first use.
var compiled = map[kind]func() (*checker, error){
	kindTask: sync.OnceValues(func() (*checker, error) {
		return compile[taskFile](kindTask, "A task: tasks/NAME.md or tasks/NAME.yaml")
	}),
	kindModels: sync.OnceValues(func() (*checker, error) { return compile[modelsFile](kindModels, "Models: models.yaml") }),
	kindConnectors: sync.OnceValues(func() (*checker, error) {
		return compile[connectorsFile](kindConnectors, "Connectors: connectors.yaml")
	}),
	kindProjects: sync.OnceValues(func() (*checker, error) { return compile[projectsFile](kindProjects, "Projects: projects.yaml") }),
	kindDaemon:   sync.OnceValues(func() (*checker, error) { return compile[daemonFile](kindDaemon, "The daemon: runnerd.yaml") }),
}

func compile[T any](k kind, title string) (*checker, error) {
	s, err := schemagen.For[T](&schemagen.ForOptions{TypeSchemas: leafSchemas()})
	if err != nil {
		return nil, fmt.Errorf("schema %s: %w", k, err)
	}
	finish(s, reflect.TypeFor[T]())
	s.Schema, s.Title = "https://json-schema.org/draft/2020-12/schema", title
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("schema %s: %w", k, err)
	}
	compiledSchema, err := compileText(text)
	if err != nil {
		return nil, fmt.Errorf("schema %s: %w", k, err)
	}
	return &checker{text, compiledSchema}, nil
}

// noLoader refuses to fetch: a schema must not make the daemon read files or
// the network.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, errors.New("references to other documents are not followed")
}

// compileText compiles a schema, a user's too; a panic of the library's comes
// back as an error, since a file must not end the daemon.
func compileText(text []byte) (s *jsonschema.Schema, err error) {
	defer func() {
		if r := recover(); r != nil {
			s, err = nil, fmt.Errorf("%v", r)
		}
	}()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource("runnerd:schema", doc); err != nil {
		return nil, err
	}
	return c.Compile("runnerd:schema")
}

// leafSchemas are the types that read more than one form.
func leafSchemas() map[reflect.Type]*schemagen.Schema {
	zero := 0.0
	one := 1
	text := func() *schemagen.Schema { return &schemagen.Schema{Type: "string", MinLength: &one} }
	grant := &schemagen.Schema{
		Types: []string{"string", "object"}, MinLength: &one,
		Properties: map[string]*schemagen.Schema{
			"tool": {Type: "string", MinLength: &one, Title: "Tool", Description: "connector/tool; in both parts * stands for any text and ? for one character"},
			"where": {
				Type: "object", Title: "Where", MinProperties: &one, AdditionalProperties: conditionSchema(),
				Description: "conditions by argument name; all must hold, and an argument that is not named must have no value; NAME: any opens one, rest: any all others, NAME: absent forbids one",
			},
			"times": {Type: "integer", Title: "Times", Minimum: ptr(1.0), Maximum: ptr(1e6),
				Description: "calls of this line in a run, in allow; default: 1 where every argument is pinned by eq, else no limit"},
		},
		PropertyOrder:        []string{"tool", "where", "times"},
		Required:             []string{"tool"},
		AdditionalProperties: &schemagen.Schema{Not: &schemagen.Schema{}},
	}
	return map[reflect.Type]*schemagen.Schema{
		reflect.TypeFor[duration]():   {Types: []string{"string", "integer"}, Pattern: durationPattern, Minimum: &zero, Maximum: &zero},
		reflect.TypeFor[size]():       {Types: []string{"string", "integer"}, Pattern: sizePattern, Minimum: &zero},
		reflect.TypeFor[stringList](): {Types: []string{"string", "array"}, MinLength: &one, Items: text()},
		reflect.TypeFor[grantLine]():  grant,
		reflect.TypeFor[object]():     {Type: "object"},
	}
}

// conditionSchema is what one argument must satisfy: a word, or policy's own fields.
func conditionSchema() *schemagen.Schema {
	s, err := schemagen.For[policy.Condition](&schemagen.ForOptions{TypeSchemas: map[reflect.Type]*schemagen.Schema{
		reflect.TypeFor[policy.Number](): {Type: "number"},
	}})
	if err != nil {
		return &schemagen.Schema{Types: []string{"string", "object"}}
	}
	finish(s, reflect.TypeFor[policy.Condition]())
	s.Type, s.Types, s.Pattern, s.MinProperties = "", []string{"string", "object"}, conditionPattern, ptr(1)
	return s
}

const conditionPattern = `^(any|absent)$`

func ptr[T any](v T) *T { return &v }

// isLeaf tells whether leafSchemas states the whole schema of t.
func isLeaf(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[duration](), reflect.TypeFor[size](), reflect.TypeFor[stringList](),
		reflect.TypeFor[grantLine](), reflect.TypeFor[object]():
		return true
	}
	return false
}

// finish makes of the inferred schema what the files need: nothing may be null,
// strings are not empty, integers are bounded; enum, default, example, min and
// title come from struct tags.
func finish(s *schemagen.Schema, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !isLeaf(t) {
		strict(s)
	} else {
		s.Types = slices.DeleteFunc(s.Types, func(x string) bool { return x == "null" })
	}
	switch t.Kind() {
	case reflect.Slice:
		if s.Items != nil && !isLeaf(t) {
			finish(s.Items, t.Elem())
		}
	case reflect.Map:
		if isLeaf(t) {
			return
		}
		if s.AdditionalProperties != nil {
			finish(s.AdditionalProperties, t.Elem())
		}
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if p := s.Properties[name]; p != nil && !f.Anonymous {
				finish(p, f.Type)
				tagged(p, name, f.Tag)
			}
		}
	}
}

func strict(s *schemagen.Schema) {
	kept := slices.DeleteFunc(slices.Clone(s.Types), func(x string) bool { return x == "null" })
	if len(kept) == 1 {
		s.Type, s.Types = kept[0], nil
	} else if len(kept) > 0 {
		s.Types = kept
	}
	if s.Type == "string" && s.MinLength == nil {
		one := 1
		s.MinLength = &one
	}
	if s.Type == "integer" && s.Maximum == nil {
		top := 1e15
		s.Maximum = &top
	}
}

func tagged(s *schemagen.Schema, name string, tag reflect.StructTag) {
	s.Title = tag.Get("title")
	if s.Title == "" {
		words := strings.ReplaceAll(name, "_", " ")
		s.Title = strings.ToUpper(words[:1]) + words[1:]
	}
	target := s
	if s.Items != nil && s.Type == "array" {
		target = s.Items
	} else if s.AdditionalProperties != nil && s.AdditionalProperties.Type != "" && s.Type == "object" {
		target = s.AdditionalProperties
		if target.Items != nil {
			target = target.Items
		}
	}
	for v := range strings.SplitSeq(tag.Get("enum"), ",") {
		if v != "" {
			target.Enum = append(target.Enum, v)
		}
	}
	if len(target.Enum) > 0 || tag.Get("empty") == "ok" {
		target.MinLength = nil
	}
	if v := tag.Get("pattern"); v != "" {
		target.Pattern = v
	}
	if v, err := strconv.ParseFloat(tag.Get("min"), 64); err == nil {
		target.Minimum = &v
	}
	if v := tag.Get("default"); v != "" {
		s.Default = literal(v)
	}
	if v := tag.Get("example"); v != "" {
		s.Examples = []any{literal(v)}
	}
}

// literal is a tag's value as JSON: itself if it is JSON, else a string.
func literal(v string) json.RawMessage {
	if json.Valid([]byte(v)) {
		return json.RawMessage(v)
	}
	data, _ := json.Marshal(v)
	return data
}

// keysAt are the keys that the schema allows at the path of an unknown one.
func keysAt(s *jsonschema.Schema, path []string) []string {
	for _, step := range path {
		switch {
		case s == nil:
			return nil
		case s.Properties[step] != nil:
			s = s.Properties[step]
		default:
			if next, ok := s.AdditionalProperties.(*jsonschema.Schema); ok && len(s.Properties) == 0 {
				s = next
			} else {
				s = s.Items2020
			}
		}
	}
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.Properties))
}
