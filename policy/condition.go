package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// verdict is what a condition says about one argument. odd is a value that the
// condition cannot judge: it does not match in allow and does match in deny.
type verdict int

const (
	odd verdict = iota
	no
	yes
)

// judge is what conditions need to know beside the value.
type judge struct {
	connector string
	origin    Origin
	resolve   func(connector, path string) (string, error)
}

// whereAllows tells whether every condition clearly holds.
func (j judge) whereAllows(where map[string]Condition, args map[string]any) bool {
	for name, c := range where {
		value, present := args[name]
		if !present || j.test(c, value) != yes {
			return false
		}
	}
	return true
}

// whereDenies tells whether no condition clearly fails.
func (j judge) whereDenies(where map[string]Condition, args map[string]any) bool {
	for name, c := range where {
		if value, present := args[name]; present && j.test(c, value) == no {
			return false
		}
	}
	return true
}

// test holds the value against every set field. The first that clearly fails
// decides; an odd one leaves the whole odd.
func (j judge) test(c Condition, value any) verdict {
	worst := yes
	set := 0
	for _, part := range []struct {
		set  bool
		test func() verdict
	}{
		{c.Eq != nil, func() verdict { return testIn([]any{c.Eq}, value) }},
		{c.In != nil, func() verdict { return testIn(c.In, value) }},
		{c.Under != "", func() verdict { return j.testUnder(c.Under, value) }},
		{c.Host != "", func() verdict { return testHost(c.Host, value) }},
		{c.Max != nil, func() verdict { return testMax(*c.Max, value) }},
	} {
		if !part.set {
			continue
		}
		set++
		switch part.test() {
		case no:
			return no
		case odd:
			worst = odd
		}
	}
	if set == 0 {
		return odd
	}
	return worst
}

func is(ok bool) verdict {
	if ok {
		return yes
	}
	return no
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

// typeOf is the JSON type of a value of a file or of a call.
func typeOf(v any) string {
	if rational(v) != nil {
		return kindOf(json.Number(""))
	}
	return kindOf(v)
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
	real, root = filepath.Clean(real), filepath.Clean(root)
	return is(root == "/" || real == root || strings.HasPrefix(real, root+"/"))
}

// oddPath tells whether a server may read another path from this text than the
// system would: servers are known to trim it, to strip quotes, to expand ~, to
// take file URLs and to cut "link/.." out as text, where the system goes up from
// where the link leads.
func oddPath(path string) bool {
	return path == "" || slices.Contains(strings.Split(path, "/"), "..") || strings.TrimFunc(path, func(r rune) bool { return unicode.IsSpace(r) || r == '"' || r == '\'' }) != path ||
		strings.HasPrefix(path, "~") || strings.Contains(path, ":/") || strings.Contains(path, `\`) ||
		strings.HasPrefix(strings.ToLower(path), "file:") || strings.ContainsFunc(path, unicode.IsControl)
}

// testHost takes an http or https URL. A port counts only where the condition
// names one.
func testHost(want string, value any) verdict {
	text, ok := value.(string)
	if !ok || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '\\' || r > unicode.MaxASCII }) {
		return odd
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Hostname() == "" {
		return odd
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if oddHost(host) {
		return odd
	}
	want = strings.ToLower(want)
	if name, port, found := cutPort(want); found {
		if u.Port() != port {
			return no
		}
		want = name
	}
	want = strings.Trim(want, "[]")
	if suffix, wild := strings.CutPrefix(want, "*."); wild {
		return is(suffix != "" && strings.HasSuffix(host, "."+suffix))
	}
	return is(host == want)
}

// oddHost tells whether readers of URLs differ about what a host is: one with
// signs that no host name has (decoded from "%2F" in a foreign alphabet, or "," and
// ";", at which some readers stop), and numbers that some take for an address, such
// as 2852039166 or 0xa9fea9fe for 169.254.169.254. An address is one in its usual
// spelling only.
func oddHost(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.String() != host || addr.Is4In6()
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	return !hostName.MatchString(host) || numeric.MatchString(last)
}

var (
	hostName = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)
	numeric  = regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`)
)

func cutPort(host string) (name, port string, found bool) {
	i := strings.LastIndexByte(host, ':')
	if i < 0 || strings.Count(host, ":") > 1 && !strings.Contains(host, "]:") {
		return "", "", false
	}
	return host[:i], host[i+1:], true
}

func testMax(most float64, value any) verdict {
	switch v := value.(type) {
	case string:
		return is(float64(utf8.RuneCountInString(v)) <= most)
	case []any:
		return is(float64(len(v)) <= most)
	}
	n, bound := rational(value), rational(most)
	if n == nil || bound == nil {
		return odd
	}
	return is(n.Cmp(bound) <= 0)
}

// equalValues compares a value of a file with one of a call: numbers by value and
// exactly, lists and objects member by member, everything else as it is.
func equalValues(want, have any) bool {
	if w := rational(want); w != nil {
		h := rational(have)
		return h != nil && w.Cmp(h) == 0
	}
	switch w := want.(type) {
	case []any:
		h, ok := have.([]any)
		if !ok || len(w) != len(h) {
			return false
		}
		for i := range w {
			if !equalValues(w[i], h[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok || len(w) != len(h) {
			return false
		}
		for key, item := range w {
			other, present := h[key]
			if !present || !equalValues(item, other) {
				return false
			}
		}
		return true
	case string:
		h, ok := have.(string)
		return ok && h == w
	case bool:
		h, ok := have.(bool)
		return ok && h == w
	case nil:
		return have == nil
	}
	return false
}

// rational is the exact value of a number, nil for anything else.
func rational(v any) *big.Rat {
	var text string
	switch n := v.(type) {
	case json.Number:
		text = n.String()
	case float64:
		return new(big.Rat).SetFloat64(n)
	case float32:
		return new(big.Rat).SetFloat64(float64(n))
	case int:
		text = strconv.Itoa(n)
	case int64:
		text = strconv.FormatInt(n, 10)
	case uint64:
		text = strconv.FormatUint(n, 10)
	default:
		return nil
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if exp, err := strconv.Atoi(text[i+1:]); err != nil || exp > maxExponent || exp < -maxExponent {
			return nil
		}
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok || len(text) > maxNumberBytes {
		return nil
	}
	return r
}

func (c Condition) check() error {
	if c.Eq == nil && c.In == nil && c.Under == "" && c.Host == "" && c.Max == nil {
		return errors.New("say one of eq, in, under, host, max")
	}
	if strings.ContainsAny(c.Host, "/@ ") {
		return fmt.Errorf("host: want a host name such as example.com or *.example.com, have %s", quote(c.Host))
	}
	if c.Under != "" && oddPath(c.Under) {
		return fmt.Errorf("under: want a path, have %s", quote(c.Under))
	}
	return nil
}

// String words the condition: "under /srv/reports".
func (c Condition) String() string {
	var parts []string
	if c.Eq != nil {
		parts = append(parts, "is "+jsonText(c.Eq))
	}
	if c.In != nil {
		parts = append(parts, "is in "+jsonText(c.In))
	}
	if c.Under != "" {
		parts = append(parts, "under "+c.Under)
	}
	if c.Host != "" {
		parts = append(parts, "has host "+c.Host)
	}
	if c.Max != nil {
		parts = append(parts, "is at most "+jsonText(*c.Max))
	}
	if parts == nil {
		return "has no condition"
	}
	return strings.Join(parts, " and ")
}

func (c Condition) yaml() string {
	var parts []string
	if c.Eq != nil {
		parts = append(parts, "eq: "+jsonText(c.Eq))
	}
	if c.In != nil {
		parts = append(parts, "in: "+jsonText(c.In))
	}
	if c.Under != "" {
		parts = append(parts, "under: "+yamlPath(c.Under))
	}
	if c.Host != "" {
		parts = append(parts, "host: "+yamlText(c.Host))
	}
	if c.Max != nil {
		parts = append(parts, "max: "+jsonText(*c.Max))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func yamlPath(path string) string {
	if rest, ok := strings.CutPrefix(path, "/"); ok && (rest == "" || plainYAML.MatchString("a"+rest)) {
		return path
	}
	return yamlText(path)
}

func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return quote(fmt.Sprint(v))
	}
	return string(data)
}
