package wire

import (
	"errors"
	"regexp"
	"slices"
	"sync"

	"runnerd/llm"
)

// Param is a parameter that an endpoint may refuse: it is left out then, or sent
// under its other name.
type Param struct {
	Name    string
	Instead string // its other name; empty if it can be left out
}

// Dialect is what an endpoint refused. It lives as long as its model, so that no
// parameter is refused twice. Its zero value knows of nothing.
type Dialect struct {
	mu      sync.Mutex
	refused []Param
}

// Without tells whether a parameter is left out.
func (d *Dialect) Without(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.refused, Param{Name: name})
}

// Name is the name under which a parameter is sent.
func (d *Dialect) Name(name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.refused {
		if p.Name == name && p.Instead != "" {
			return p.Instead
		}
	}
	return name
}

// Adapted says, a line for each parameter, what was learned.
func (d *Dialect) Adapted() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []string
	for _, p := range d.refused {
		list = append(list, p.String())
	}
	return list
}

func (p Param) String() string {
	if p.Instead != "" {
		return p.Name + " is refused and sent as " + p.Instead
	}
	return p.Name + " is refused and left out"
}

// unknownWords are how servers say that they do not know a parameter; that its
// value is bad is said otherwise.
var unknownWords = regexp.MustCompile(`(?i)unsupported|not (?:currently )?support|doesn't support|unknown|unrecogni[sz]ed|unexpected|not (?:a )?known|` +
	`extra (?:inputs?|fields?|parameters?)|extra_forbidden|not permitted|not allowed|forbidden|no longer|deprecated|additional propert|` +
	`invalid (?:parameter|argument|field)s?\b|not (?:a )?valid (?:parameter|argument|field)|cannot be used|instead`)

// Learn takes a rejection of a request that had these parameters. It tells
// whether asking again will be another request: if the endpoint named one of them
// as unknown, and was not asked the other way before.
func (d *Dialect) Learn(err error, sent ...Param) bool {
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != llm.BadRequest || e.Status != 400 && e.Status != 422 {
		return false
	}
	said := e.Param + " " + e.Message
	if !unknownWords.MatchString(said) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range sent {
		back := Param{Name: p.Instead, Instead: p.Name}
		if !names(said, p.Name) || slices.Contains(d.refused, p) || p.Instead != "" && slices.Contains(d.refused, back) {
			continue
		}
		d.refused = append(d.refused, p)
		return true
	}
	return false
}

// names tells whether words name a parameter, alone and not as part of another.
func names(said, param string) bool {
	return regexp.MustCompile(`(?:^|[^A-Za-z0-9_])` + regexp.QuoteMeta(param) + `(?:$|[^A-Za-z0-9_])`).MatchString(said)
}
