package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Condition is what one argument must satisfy; every field that is set must hold.
// In a file it is a mapping of its fields, or one of the words any and absent. What
// the fields mean stands in conditions, one entry each.
type Condition struct {
	Any    bool `json:"-"`
	Absent bool `json:"-"`

	Eq        any    `json:"eq,omitempty" title:"Equals" jsonschema:"the argument is exactly this, a list or a mapping included; numbers by value"`
	In        []any  `json:"in,omitempty" jsonschema:"the argument is one of these"`
	Under     string `json:"under,omitempty" example:"/srv/reports" jsonschema:"the argument is a path at or below this one"`
	Host      string `json:"host,omitempty" example:"*.example.com" jsonschema:"the argument is an http or https URL of this host, and of this port if it has one"`
	Max       Number `json:"max,omitempty" jsonschema:"the argument is a number, at most this; say min too where a negative one does harm"`
	Min       Number `json:"min,omitempty" jsonschema:"the argument is a number, at least this"`
	MaxLength *int   `json:"max_length,omitempty" min:"0" jsonschema:"the argument is a text of at most so many characters"`
	MaxItems  *int   `json:"max_items,omitempty" min:"0" jsonschema:"the argument is a list of at most so many items"`

	// faults are what could not be decoded.
	faults []Fault
}

// The words that stand for a condition, and the name under which any opens every
// argument that a line does not name.
const (
	anyWord    = "any"
	absentWord = "absent"
	restKey    = "rest"
)

// condition is all that is known of one field of Condition: one entry here makes it
// load, match, explain itself and be held against a schema.
type condition struct {
	key string
	// of is the field's value for words and YAML, nil if it is not set.
	of    func(c Condition) any
	words string
	// fault says what is wrong with the value by itself; nil: nothing can be.
	fault func(c Condition) *Fault
	test  func(j judge, c Condition, value any) verdict
	// types are those that a value must have to match; nil: any.
	types []string
	// never says why no value that the schema admits can match, and what to do;
	// nil: the types say all.
	never func(j judge, c Condition, p property) (why, cure string)
	// pins says that it leaves a call no freedom to carry data.
	pins bool
}

var conditions []*condition

func init() {
	conditions = []*condition{
		{key: "eq", words: "is", pins: true,
			of:    func(c Condition) any { return c.Eq },
			test:  func(_ judge, c Condition, v any) verdict { return testIn([]any{c.Eq}, v) },
			never: func(j judge, c Condition, p property) (string, string) { return j.admitsNone(p, "eq", []any{c.Eq}) }},
		{key: "in", words: "is in", pins: true,
			of: func(c Condition) any { return unset(c.In == nil, c.In) },
			fault: func(c Condition) *Fault {
				return faultIf(len(c.In) == 0, "empty list: nothing would ever match", "at least one value")
			},
			test:  func(_ judge, c Condition, v any) verdict { return testIn(c.In, v) },
			never: func(j judge, c Condition, p property) (string, string) { return j.admitsNone(p, "in", c.In) }},
		{key: "under", words: "under", types: []string{"string"},
			of: func(c Condition) any { return unset(c.Under == "", bare(c.Under)) },
			fault: func(c Condition) *Fault {
				return faultIf(oddPath(c.Under), "bad path "+quote(c.Under), "a path such as /srv/reports")
			},
			test:  func(j judge, c Condition, v any) verdict { return j.testUnder(c.Under, v) },
			never: func(j judge, c Condition, _ property) (string, string) { return j.outsideRoot(c.Under) }},
		{key: "host", words: "has host", types: []string{"string"},
			of: func(c Condition) any { return unset(c.Host == "", bare(c.Host)) },
			fault: func(c Condition) *Fault {
				_, ok := parseHost(c.Host)
				return faultIf(!ok, "bad host "+quote(c.Host), `a host name, or "*.example.com", with a port or without`)
			},
			test:  func(_ judge, c Condition, v any) verdict { return testHost(c.Host, v) },
			never: func(_ judge, _ Condition, p property) (string, string) { return p.noURL() }},
		{key: "max", words: "is at most", types: []string{"number"},
			of:    func(c Condition) any { return unset(c.Max == "", c.Max) },
			test:  func(_ judge, c Condition, v any) verdict { return testBound(c.Max, v, -1) },
			never: func(_ judge, c Condition, p property) (string, string) { return p.beyond(c.Max, -1) }},
		{key: "min", words: "is at least", types: []string{"number"},
			of:    func(c Condition) any { return unset(c.Min == "", c.Min) },
			test:  func(_ judge, c Condition, v any) verdict { return testBound(c.Min, v, 1) },
			never: func(_ judge, c Condition, p property) (string, string) { return p.beyond(c.Min, 1) }},
		{key: "max_length", words: "is no longer than", types: []string{"string"},
			of:    func(c Condition) any { return unset(c.MaxLength == nil, c.MaxLength) },
			fault: func(c Condition) *Fault { return negative(c.MaxLength) },
			test: func(_ judge, c Condition, v any) verdict {
				text, ok := v.(string)
				return unless(!ok, is(utf8.RuneCountInString(text) <= *c.MaxLength))
			}},
		{key: "max_items", words: "has no more items than", types: []string{"array"},
			of:    func(c Condition) any { return unset(c.MaxItems == nil, c.MaxItems) },
			fault: func(c Condition) *Fault { return negative(c.MaxItems) },
			test: func(_ judge, c Condition, v any) verdict {
				list, ok := v.([]any)
				return unless(!ok, is(len(list) <= *c.MaxItems))
			}},
	}
}

// bare is text that YAML needs in quotes only where it is odd.
type bare string

func unset(not bool, v any) any {
	if not {
		return nil
	}
	return v
}

func faultIf(bad bool, what, expected string) *Fault {
	if !bad {
		return nil
	}
	return &Fault{What: what, Expected: expected}
}

func negative(n *int) *Fault {
	return faultIf(*n < 0, fmt.Sprintf("%d is too small", *n), "at least 0")
}

// conditionKeys are the fields of a condition, sorted.
func conditionKeys() []string {
	keys := make([]string, len(conditions))
	for i, k := range conditions {
		keys[i] = k.key
	}
	sort.Strings(keys)
	return keys
}

// set are the entries of the fields that are set.
func (c Condition) set() []*condition {
	var list []*condition
	for _, k := range conditions {
		if k.of(c) != nil {
			list = append(list, k)
		}
	}
	return list
}

// UnmarshalJSON never fails: what cannot be read is a fault of the condition.
func (c *Condition) UnmarshalJSON(data []byte) error {
	*c = Condition{}
	var word string
	if json.Unmarshal(data, &word) == nil && bytes.HasPrefix(bytes.TrimSpace(data), []byte{'"'}) {
		c.Any, c.Absent = word == anyWord, word == absentWord
		if !c.Any && !c.Absent {
			c.bad(nil, "unknown word "+quote(word), "any, absent, or a mapping such as {eq: "+yamlText(word)+"}", "")
		}
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil {
		c.bad(nil, "no condition", "any, absent, or a mapping of "+strings.Join(conditionKeys(), ", "), "")
		return nil
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		c.decode(name, fields[name])
	}
	return nil
}

func (c *Condition) bad(path []string, what, expected, hint string) {
	c.faults = append(c.faults, Fault{path, what, expected, hint})
}

func (c *Condition) decode(name string, data json.RawMessage) {
	if !slices.Contains(conditionKeys(), name) {
		c.bad([]string{name}, "unknown key "+quote(name), "one of "+strings.Join(conditionKeys(), ", "), "")
		return
	}
	if string(bytes.TrimSpace(data)) == "null" {
		c.bad([]string{name}, "no value: nothing would ever match", "a value", "an argument that must not be there is written: absent")
		return
	}
	one, err := json.Marshal(map[string]json.RawMessage{name: data})
	type plain Condition
	dec := json.NewDecoder(bytes.NewReader(one))
	dec.UseNumber() // a number keeps the digits that it was written with
	if err == nil {
		err = dec.Decode((*plain)(c))
	}
	if err != nil {
		c.bad([]string{name}, "wrong type: "+valueText(data), "a value that "+name+" can compare", "")
	}
}

// MarshalJSON writes what UnmarshalJSON reads.
func (c Condition) MarshalJSON() ([]byte, error) {
	switch {
	case c.Any:
		return json.Marshal(anyWord)
	case c.Absent:
		return json.Marshal(absentWord)
	}
	type plain Condition
	return json.Marshal(plain(c))
}

// check is what is wrong with the condition by itself.
func (c Condition) check() []Fault {
	found := slices.Clone(c.faults)
	for _, k := range c.set() {
		if k.fault == nil {
			continue
		}
		if f := k.fault(c); f != nil {
			found = append(found, f.at(k.key))
		}
	}
	if len(found) == 0 {
		if f := c.contradiction(); f != nil {
			found = append(found, *f)
		}
	}
	if len(found) == 0 && !c.Any && !c.Absent && len(c.set()) == 0 {
		found = append(found, Fault{What: "nothing is said here", Expected: "any, absent, or one of " + strings.Join(conditionKeys(), ", ")})
	}
	return found
}

// contradiction finds fields of which no value can meet all. Paths are not judged
// here: where they lead is known at the call.
func (c Condition) contradiction() *Fault {
	set := c.set()
	never := func(key, what string) *Fault {
		return &Fault{[]string{key}, what + ": nothing would ever match", "conditions that one value can meet", ""}
	}
	if c.Min != "" && c.Max != "" && rational(c.Min).Cmp(rational(c.Max)) > 0 {
		return never("min", fmt.Sprintf("at least %s and at most %s", c.Min, c.Max))
	}
	for i, k := range set {
		for _, other := range set[:i] {
			if other.types != nil && k.types != nil && !slices.ContainsFunc(k.types, func(t string) bool { return slices.Contains(other.types, t) }) {
				return never(k.key, fmt.Sprintf("%s is for %s and %s for %s", other.key, strings.Join(other.types, " or "), k.key, strings.Join(k.types, " or ")))
			}
		}
	}
	for _, k := range set {
		meets := func(v any) bool { return k.test(judge{}, c, v) == yes }
		if k.key != "under" && c.pinned() && len(c.values()) > 0 && !slices.ContainsFunc(c.values(), meets) {
			return never(c.pinKey(), "no value here "+k.phrase(c))
		}
	}
	return nil
}

// pinned tells whether the values are listed.
func (c Condition) pinned() bool { return c.Eq != nil || c.In != nil }

// values are the listed ones, pinKey the field that lists them.
func (c Condition) values() []any {
	if c.Eq != nil {
		return []any{c.Eq}
	}
	return c.In
}

func (c Condition) pinKey() string {
	if c.Eq != nil {
		return "eq"
	}
	return "in"
}

// verdict is what a condition says about one argument. odd is a value that the
// condition cannot judge: it does not match in allow and does match in deny.
type verdict int

const (
	odd verdict = iota
	no
	yes
)

func is(ok bool) verdict {
	if ok {
		return yes
	}
	return no
}

// unless is the verdict, or odd for a value that cannot be judged.
func unless(cannot bool, v verdict) verdict {
	if cannot {
		return odd
	}
	return v
}

// judge is what conditions need to know beside the value.
type judge struct {
	connector string
	origin    Origin
	resolve   func(connector, path string) (string, error)
}

// allows tells whether the line lets the arguments through: every condition clearly
// holds and, if there are any, no other argument has a value.
func (j judge) allows(g Grant, args map[string]any) bool { return j.missed(g, args) == "" }

// missed says by which argument, with its value, a call misses a line of allow; ""
// if the line lets it through.
func (j judge) missed(g Grant, args map[string]any) string {
	if len(g.Where) == 0 {
		return ""
	}
	for _, name := range g.arguments() {
		value, present := args[name]
		switch {
		case j.test(g.Where[name], value, present) == yes:
		case !present:
			return printable(name) + " is missing"
		default:
			return fmt.Sprintf("%s is %s", printable(name), clip(valueText(value), 120))
		}
	}
	if g.Where[restKey].Any {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if _, named := g.Where[name]; !named && args[name] != nil {
			return printable(name) + " is not named in it"
		}
	}
	return ""
}

func printable(name string) string {
	if plainYAML.MatchString(name) {
		return name
	}
	return quote(name)
}

// denies tells whether no condition clearly fails. What the line does not name does
// not matter.
func (j judge) denies(g Grant, args map[string]any) bool {
	for name, c := range g.Where {
		if value, present := args[name]; j.test(c, value, present) == no {
			return false
		}
	}
	return true
}

// test holds an argument against every set field. The first that clearly fails
// decides; an odd one leaves the whole odd. A null counts as absent.
func (j judge) test(c Condition, value any, present bool) verdict {
	switch {
	case len(c.faults) > 0:
		return odd
	case c.Any:
		return yes
	case c.Absent:
		return is(value == nil)
	case !present:
		return odd
	}
	worst, set := yes, c.set()
	for _, k := range set {
		switch k.test(j, c, value) {
		case no:
			return no
		case odd:
			worst = odd
		}
	}
	return unless(len(set) == 0, worst)
}

// testIn compares with each value of a list. One of another type than all of
// them is odd: a server that takes "5" for 5, or a list of one for its item, would
// read it as the listed value.
func testIn(list []any, value any) verdict {
	sameType := len(list) == 0
	for _, item := range list {
		if equalValues(item, value) {
			return yes
		}
		sameType = sameType || typeOf(item) == typeOf(value)
	}
	if !sameType {
		return odd
	}
	return no
}

// testUnder compares on borders of path components, after resolving both sides.
func (j judge) testUnder(base string, value any) verdict {
	path, ok := value.(string)
	if !ok || oddPath(path) || j.resolve == nil || j.origin.URL != "" {
		return odd
	}
	if j.origin.Root == "" && (!filepath.IsAbs(path) || !filepath.IsAbs(base)) {
		return odd // relative to what only the server knows
	}
	real, err := j.resolve(j.connector, path)
	if err != nil || !filepath.IsAbs(real) {
		return odd
	}
	root, err := j.resolve(j.connector, base)
	if err != nil || !filepath.IsAbs(root) {
		return odd
	}
	return is(within(filepath.Clean(real), filepath.Clean(root)))
}

// oddPath tells whether a server may read another path from this text than the
// system would: servers are known to trim it, to strip quotes, to expand ~, to
// take file URLs and to cut "link/.." out as text, where the system goes up from
// where the link leads.
func oddPath(path string) bool {
	return path == "" || hasDots(path) || strings.TrimFunc(path, func(r rune) bool { return unicode.IsSpace(r) || r == '"' || r == '\'' }) != path ||
		strings.HasPrefix(path, "~") || strings.Contains(path, ":/") || strings.Contains(path, `\`) ||
		strings.HasPrefix(strings.ToLower(path), "file:") || strings.ContainsFunc(path, unicode.IsControl)
}

func hasDots(path string) bool { return slices.Contains(strings.Split(path, "/"), "..") }

// testBound compares a number with a bound, exactly. side is the sign that the
// difference may have: -1 for an upper bound, 1 for a lower.
func testBound(bound Number, value any, side int) verdict {
	n, b := rational(value), rational(bound)
	if n == nil || b == nil {
		return odd
	}
	return is(n.Cmp(b) != -side)
}

// String words the condition: "under /srv/reports".
func (c Condition) String() string {
	switch {
	case c.Any:
		return "is anything"
	case c.Absent:
		return "is absent"
	}
	var parts []string
	for _, k := range c.set() {
		parts = append(parts, k.phrase(c))
	}
	if parts == nil {
		return "has no condition"
	}
	return strings.Join(parts, " and ")
}

// phrase words one field.
func (k *condition) phrase(c Condition) string {
	if plain, ok := k.of(c).(bare); ok {
		return k.words + " " + string(plain)
	}
	return k.words + " " + valueText(k.of(c))
}

// yaml is the condition as it stands in a task file.
func (c Condition) yaml() string {
	switch {
	case c.Any:
		return anyWord
	case c.Absent:
		return absentWord
	}
	var parts []string
	for _, k := range c.set() {
		if plain, ok := k.of(c).(bare); ok {
			parts = append(parts, k.key+": "+yamlPath(string(plain)))
		} else {
			parts = append(parts, k.key+": "+jsonText(k.of(c)))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func yamlPath(path string) string {
	if rest, ok := strings.CutPrefix(path, "/"); ok && (rest == "" || plainYAML.MatchString("a"+rest)) {
		return path
	}
	return yamlText(path)
}
