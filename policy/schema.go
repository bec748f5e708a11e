package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"runnerd/task"
)

// Bounds on a server's schema and on what checking arguments against it may cost.
const (
	maxSchemaBytes = 1 << 20
	maxSchemaDepth = 200
	maxSchemas     = 512
	maxVisits      = 200_000
)

// errSchema marks a schema that cannot be used, as against arguments that do not
// fit a good one.
var errSchema = errors.New("the tool's input schema cannot be used")

// Schemas is a bounded cache of compiled argument schemas, by definition hash. It
// may be used by several goroutines at once.
type Schemas struct {
	mu     sync.Mutex
	byHash map[string]*argumentSchema
}

// NewSchemas returns an empty cache.
func NewSchemas() *Schemas { return &Schemas{byHash: map[string]*argumentSchema{}} }

// fit holds arguments against the tool's schema. An error that is errSchema means
// that the schema is to blame.
func (s *Schemas) fit(t task.Tool, args map[string]any) error {
	return s.get(t).fit(args)
}

func (s *Schemas) get(t task.Tool) *argumentSchema {
	if s == nil {
		return compileSchema(t.InputSchema)
	}
	key := definition(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.byHash[key]; known != nil {
		return known
	}
	if len(s.byHash) >= maxSchemas || s.byHash == nil {
		s.byHash = map[string]*argumentSchema{}
	}
	compiled := compileSchema(t.InputSchema)
	s.byHash[key] = compiled
	return compiled
}

// argumentSchema is one compiled schema. visits counts what a check costs: a
// server can write a small schema that takes for ever.
type argumentSchema struct {
	err    error // why it cannot be used
	schema *jsonschema.Schema

	mu     sync.Mutex
	visits int
}

var errTooCostly = errors.New("checking takes too long")

// SchemaError says why a tool with this input schema could never be called; nil if
// it can.
func SchemaError(raw json.RawMessage) error { return compileSchema(raw).err }

// compileSchema never loads anything: a $ref that leads out of the document does
// not compile. A tool without a schema takes any object.
func compileSchema(raw json.RawMessage) *argumentSchema {
	a := &argumentSchema{}
	if t := bytes.TrimSpace(raw); len(t) == 0 || bytes.Equal(t, []byte("null")) {
		return a
	}
	a.schema, a.err = a.compile(raw)
	if a.err != nil {
		a.err = fmt.Errorf("%w: %s", errSchema, oneLine(inSchema(a.err)))
	}
	return a
}

// inSchema is what is wrong in a schema itself, without the schema of schemas.
func inSchema(err error) error {
	var se *jsonschema.SchemaValidationError
	var ve *jsonschema.ValidationError
	if errors.As(err, &se) && errors.As(se.Err, &ve) {
		parts, _ := violations(ve)
		return errors.New(strings.Join(parts, "; "))
	}
	return err
}

func (a *argumentSchema) compile(raw json.RawMessage) (_ *jsonschema.Schema, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the compiler gave up: %v", r)
		}
	}()
	if len(raw) > maxSchemaBytes {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(raw), maxSchemaBytes)
	}
	if deeper(raw, maxSchemaDepth) {
		return nil, fmt.Errorf("it is nested deeper than %d", maxSchemaDepth)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	const place = "schema:arguments"
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	c.UseRegexpEngine(compilePattern)
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: "schema:visits", Compile: a.count})
	c.AssertVocabs()
	if err := c.AddResource(place, doc); err != nil {
		return nil, err
	}
	return c.Compile(place)
}

// compilePattern reads what RE2 can read. A pattern that ECMAScript may well have
// words for and RE2 has not, such as schema generators write for mail addresses, is
// left for the server to judge; a broken one is an error.
func compilePattern(pattern string) (jsonschema.Regexp, error) {
	re, err := regexp.Compile(pattern)
	var bad *syntax.Error
	if errors.As(err, &bad) && foreign(bad, pattern) {
		return anyText(pattern), nil
	}
	if err != nil {
		return nil, err
	}
	return re, nil
}

// foreign tells whether RE2's trouble with a pattern may be its own.
func foreign(bad *syntax.Error, pattern string) bool {
	switch bad.Code {
	case syntax.ErrInvalidPerlOp, syntax.ErrInvalidEscape, syntax.ErrInvalidCharRange, syntax.ErrInvalidRepeatSize, syntax.ErrLarge:
		return true
	case syntax.ErrInvalidNamedCapture: // lookbehind
		return strings.HasPrefix(bad.Expr, "(?<=") || strings.HasPrefix(bad.Expr, "(?<!")
	case syntax.ErrMissingBracket: // any character, none
		return strings.Contains(pattern, "[^]") || strings.Contains(pattern, "[]")
	}
	return false
}

type anyText string

func (a anyText) String() string        { return string(a) }
func (anyText) MatchString(string) bool { return true }

// count hooks into every subschema so that a check can be stopped: each visit
// weighs as much as the alternatives that it opens. The name of a format is kept,
// though formats are not asserted.
func (a *argumentSchema) count(ctx *jsonschema.CompilerContext, object map[string]any) (jsonschema.SchemaExt, error) {
	s := ctx.Enqueue(nil)
	weight := 1 + len(s.AllOf) + len(s.AnyOf) + len(s.OneOf)
	before := s.Format
	name, _ := object["format"].(string)
	s.Format = &jsonschema.Format{Name: name, Validate: func(v any) error {
		if a.visits += weight; a.visits > maxVisits {
			panic(errTooCostly)
		}
		if before == nil || before.Validate == nil {
			return nil
		}
		return before.Validate(v)
	}}
	return nil, nil
}

func (a *argumentSchema) fit(args map[string]any) (err error) {
	if a.err != nil || a.schema == nil {
		return a.err
	}
	return a.fits(a.schema, args)
}

// fits holds a value against a part of the schema.
func (a *argumentSchema) fits(part *jsonschema.Schema, value any) (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errSchema, r)
		}
	}()
	a.visits = 0
	if err := part.Validate(value); err != nil {
		return misfit(err)
	}
	return nil
}

// misfit words the violations for the model, a few of them. A schema that refers to
// itself for ever is the schema's fault.
func misfit(err error) error {
	var ve *jsonschema.ValidationError
	errors.As(err, &ve)
	parts, cycle := violations(ve)
	text := strings.Join(parts, "; ")
	if cycle {
		return fmt.Errorf("%w: %s", errSchema, text)
	}
	return errors.New("arguments do not fit the tool's schema: " + text)
}

// violations words what is wrong at the leaves of an error, a few of them, each
// once; cycle tells of a schema that refers to itself for ever.
func violations(ve *jsonschema.ValidationError) (parts []string, cycle bool) {
	const most = 3
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(parts) == most {
			return
		}
		if _, is := e.ErrorKind.(*kind.RefCycle); is {
			cycle = true
		}
		if len(e.Causes) == 0 {
			part := clip(spaces.ReplaceAllString(strings.TrimPrefix(e.Error(), "at '': "), " "), 250)
			if part = strings.TrimPrefix(part, "jsonschema: "); !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
		for _, cause := range e.Causes {
			walk(cause)
		}
	}
	if ve != nil {
		walk(ve)
	}
	return parts, cycle
}

// deeper tells whether JSON text nests deeper than most, without reading it into
// memory.
func deeper(raw []byte, most int) bool {
	depth, inString := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > most {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

var spaces = regexp.MustCompile(`\s+`)

func oneLine(err error) string { return clip(spaces.ReplaceAllString(err.Error(), " "), 300) }

// clip cuts text at a number of characters.
func clip(s string, most int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
