package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
)

// parsed is one file, read and checked as far as it can be by itself. Loads share
// it: but for what is given up and made again (see spare and places), which only
// whoever has the loader's turn does, it is not changed after parse returns.
type parsed struct {
	rel     string
	kind    kind
	content []byte
	sum     string
	// tree holds the places. There may be very many tasks, so a good one's is given
	// up and made again if a later load has to complain; see places.
	tree     *tree
	problems []Problem
	// cut are the pointers of values that were complained about and left out.
	cut      []string
	warnings []Problem
	refs     []reference
	// partial says that a top-level entry is left out for its syntax.
	partial bool
	// entries are the indexes of the entries of lists of connectors, by the
	// list's pointer: checking removes repeats and so moves what follows.
	entries map[string]map[string]int
	// leftOut says of each connector of another host's file that is not used why.
	leftOut map[string]string

	// spare says that task, entries and tree of a good task were given up.
	spare bool

	// One of these is set unless the file could not be read at all, or is spare.
	task       *taskFile
	models     *modelsFile
	connectors *connectorsFile
	projects   *projectsFile
	daemon     *daemonFile
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// maxProblems bounds what is said about one file.
const maxProblems = 100

// parse reads content as a file of the kind. It never fails: what is wrong is in
// problems, and what could be read is there.
func parse(rel string, k kind, content []byte) *parsed {
	p := &parsed{rel: rel, kind: k, content: content, sum: sumOf(content)}
	src, prompt, ok := p.open()
	if !ok || !p.read(src) {
		return p
	}
	p.validate()
	p.decode(prompt)
	if more := len(p.problems) - maxProblems; more > 0 {
		p.problems = sortProblems(p.problems)[:maxProblems]
		p.complain(nil, fmt.Sprintf("%d more problems in this file", more), "", "mend those above first")
	}
	p.tree.value, p.tree.src.text, p.tree.problems, p.cut = nil, nil, nil, nil
	if k == kindTask && p.good() {
		p.tree = nil
	}
	return p
}

// open parts the content into what is YAML or JSON and the prompt below it.
func (p *parsed) open() (src, prompt source, ok bool) {
	src, bad := readable(p.rel, p.content)
	if bad == nil && path.Ext(p.rel) == ".md" {
		src, prompt, bad = splitFrontMatter(src)
	}
	if bad != nil {
		p.problems = append(p.problems, *bad)
	}
	return src, prompt, bad == nil
}

// places is the tree, made again if it was given up; nil if there is none. Only
// whoever has the loader's turn may ask.
func (p *parsed) places() *tree {
	if p.tree != nil {
		return p.tree
	}
	again := &parsed{rel: p.rel, kind: p.kind, content: p.content}
	if src, _, ok := again.open(); ok && again.read(src) {
		p.tree = again.tree
		p.tree.value, p.tree.src.text, p.tree.problems = nil, nil, nil
	}
	return p.tree
}

// read fills the tree and tells whether there is one.
func (p *parsed) read(src source) bool {
	if isHostFile(p.rel) {
		src.text = plainJSON(src.text)
		root, problems := parseJSON(src)
		p.problems = append(p.problems, problems...)
		if root == nil {
			return false
		}
		p.readHostFile(src, root)
		p.tree = newTree(src, root)
	} else {
		root, problems, broken := parseYAML(src)
		p.problems = append(p.problems, problems...)
		if root == nil && broken {
			return false
		}
		p.partial = broken
		p.tree = newTree(src, root)
	}
	p.problems = append(p.problems, p.tree.problems...)
	return !p.tree.over
}

// validate checks against the schema and cuts out what does not fit, so that
// the rest can still be decoded and checked.
func (p *parsed) validate() {
	c, err := compiled[p.kind]()
	if err != nil {
		p.problems = append(p.problems, Problem{File: p.rel, What: err.Error()})
		return
	}
	foreign := isHostFile(p.rel)
	for _, v := range c.violations(p.tree) {
		switch {
		case v.unknown && foreign:
			v.problem.What += " is ignored"
			v.problem.Expected = ""
			p.warnings = append(p.warnings, v.problem)
		case complained(p.tree.problems, v.problem):
		default:
			p.problems = append(p.problems, v.problem)
		}
		if !v.missing {
			p.tree.value = without(p.tree.value, v.path)
			p.cut = append(p.cut, pointerOf(v.path))
		}
	}
}

// complained tells whether the value's form was refused already.
func complained(list []Problem, p Problem) bool {
	return slices.ContainsFunc(list, func(q Problem) bool { return q.Line == p.Line && q.Col == p.Col })
}

// without removes the map entry that the path leads to or, if that is an entry of
// a list, the whole list, so that no index moves.
func without(value any, at []string) any {
	for n := len(at); n > 0; n-- {
		if m, ok := lookup(value, at[:n-1]).(map[string]any); ok {
			delete(m, at[n-1])
			return value
		}
	}
	if _, ok := value.(map[string]any); ok {
		return value
	}
	return map[string]any{}
}

func lookup(value any, at []string) any {
	for _, step := range at {
		m, ok := value.(map[string]any)
		if !ok {
			if list, isList := value.([]any); isList {
				i, err := strconv.Atoi(step)
				if err != nil || i < 0 || i >= len(list) {
					return nil
				}
				value = list[i]
				continue
			}
			return nil
		}
		value = m[step]
	}
	return value
}

func (p *parsed) decode(prompt source) {
	data, err := json.Marshal(p.tree.value)
	if err == nil {
		switch p.kind {
		case kindTask:
			p.task = new(taskFile)
			err = json.Unmarshal(data, p.task)
		case kindModels:
			p.models = new(modelsFile)
			err = json.Unmarshal(data, p.models)
		case kindConnectors:
			p.connectors = new(connectorsFile)
			err = json.Unmarshal(data, p.connectors)
		case kindProjects:
			p.projects = new(projectsFile)
			err = json.Unmarshal(data, p.projects)
		case kindDaemon:
			p.daemon = new(daemonFile)
			err = json.Unmarshal(data, p.daemon)
		}
	}
	if err != nil {
		if len(p.problems) == 0 {
			p.complain(nil, oneLine(err.Error()), "", "")
		}
		return
	}
	switch p.kind {
	case kindTask:
		p.checkTask(prompt)
	case kindModels:
		p.checkModels()
	case kindConnectors:
		p.checkConnectors()
	case kindProjects:
		p.checkProjects()
	case kindDaemon:
		p.checkDaemon()
	}
}

// good tells whether the file is fit for use as far as it says itself.
func (p *parsed) good() bool { return len(p.problems) == 0 }

func (p *parsed) complain(at []string, what, expected, hint string) {
	p.problems = append(p.problems, p.tree.src.problem(p.tree.at(at...), where(at)+what, expected, hint))
}

func (p *parsed) complainKey(at []string, what, expected, hint string) {
	p.problems = append(p.problems, p.tree.src.problem(p.tree.keyAt(at...), where(at[:len(at)-1])+what, expected, hint))
}

func (p *parsed) warn(at []string, what, expected, hint string) {
	p.warnings = append(p.warnings, p.tree.src.problem(p.tree.at(at...), where(at)+what, expected, hint))
}

// has tells whether the file says anything at the path.
func (p *parsed) has(at ...string) bool {
	t := p.places()
	return t != nil && t.has(at...)
}

// problemAt is a complaint that a later, cross-file check has about the file.
func (p *parsed) problemAt(at []string, what, expected, hint string) Problem {
	t := p.places()
	if t == nil {
		return Problem{File: p.rel, What: what, Expected: expected, Hint: hint}
	}
	return t.src.problem(t.at(at...), where(at)+what, expected, hint)
}

// below returns path with more steps, in memory of its own.
func below(path []string, more ...string) []string { return append(slices.Clone(path), more...) }
