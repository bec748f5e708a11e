package config

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// purpose is what a string with ${...} in it is resolved for.
type purpose uint8

const (
	forSecret purpose = iota // models, connectors' env and headers, deliveries
	forPath                  // a ${env:HOME} in a path is no secret
	forPrompt                // may hold ${file:NAME}, must not hold a credential
)

// reference is one string of a file that holds ${...}.
type reference struct {
	at      mark
	text    string
	purpose purpose
}

// segment is a piece of a string: literal text, or a reference.
type segment struct {
	literal string
	kind    string // env | credential | file; empty for literal text
	name    string
	// fallback stands in for a variable that is not set or empty, as ${VAR:-x}.
	fallback    string
	hasFallback bool
	offset      int // of the "${" in the string
}

var (
	envName        = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	credentialName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,254}$`)
)

const expectedReference = "${env:NAME} or ${credential:NAME}"

// splitReferences parts s at its references; "$${" stands for a literal "${".
// With loose set, a ${...} of another kind is literal text, as a prompt may hold
// a piece of shell; else it is an error.
func splitReferences(s string, loose bool) ([]segment, error) {
	var out []segment
	var literal strings.Builder
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "$${"):
			literal.WriteString("${")
			i += 3
			continue
		case !strings.HasPrefix(s[i:], "${"):
			literal.WriteByte(s[i])
			i++
			continue
		}
		window := s[i:min(len(s), i+maxReference)]
		seg, err := parseReference(window, i)
		switch {
		case err == nil:
			out = append(out, segment{literal: literal.String()}, seg)
			literal.Reset()
			i += strings.IndexByte(window, '}') + 1
		case loose && seg.kind == "":
			literal.WriteString("${")
			i += 2
		default:
			return nil, err
		}
	}
	return append(out, segment{literal: literal.String()}), nil
}

// maxReference bounds the length of one reference, and so the search for its
// end.
const maxReference = 1024

// parseReference reads the reference at the beginning of s. On an error, kind is
// set if it was meant as one of ours.
func parseReference(s string, offset int) (segment, error) {
	end := strings.IndexByte(s, '}')
	if end < 0 {
		return segment{}, fmt.Errorf("%s is not closed", quoted(s))
	}
	body := s[2:end]
	kind, name, ok := strings.Cut(body, ":")
	seg := segment{kind: kind, name: name, offset: offset}
	switch {
	case ok && kind == "env":
		seg.name, seg.fallback, seg.hasFallback = strings.Cut(name, ":-")
		if !envName.MatchString(seg.name) {
			return seg, fmt.Errorf("bad variable name %s in %s", quoted(seg.name), quoted(s[:end+1]))
		}
	case ok && kind == "credential":
		if !credentialName.MatchString(name) {
			return seg, fmt.Errorf("bad credential name %s in %s", quoted(name), quoted(s[:end+1]))
		}
	case ok && kind == "file":
		if name == "" || path.IsAbs(name) || path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../") {
			return seg, fmt.Errorf("bad file name %s in %s: want a path inside the config directory", quoted(name), quoted(s[:end+1]))
		}
	default:
		return segment{}, fmt.Errorf("unknown reference %s", quoted(s[:end+1]))
	}
	return seg, nil
}

// reference checks the ${...} in one value and keeps it for Missing.
func (p *parsed) reference(at []string, s string, why purpose) {
	if why == forSecret {
		p.warnPlainSecret(at, s)
	}
	if !strings.Contains(s, "${") {
		return
	}
	segs, err := splitReferences(s, false)
	if err != nil {
		p.complain(at, err.Error(), expectedReference, "write $${ for a literal ${")
		return
	}
	for _, seg := range segs {
		if seg.kind == "file" {
			p.complain(at, quoted("${file:"+seg.name+"}")+" stands outside a prompt", expectedReference, "")
			return
		}
	}
	p.refs = append(p.refs, reference{p.tree.at(at...), s, why})
}

// argument is reference for a part of a command line, which is no place for a
// secret: any process of the machine may read it.
func (p *parsed) argument(at []string, s string) {
	p.reference(at, s, forSecret)
	if holdsCredential(s) {
		p.warn(at, "a credential in an argument: other processes of this machine can read a command line (/proc/PID/cmdline)", "",
			"pass it under env: where there is one, or as the path of a file")
	}
}

// address is reference for a URL, whose query is written to logs on its way.
func (p *parsed) address(at []string, s string) {
	p.reference(at, s, forSecret)
	if _, query, found := strings.Cut(s, "?"); found && holdsCredential(query) {
		p.warn(at, "a credential in a query: servers and proxies on the way log addresses", "", "send it under headers: if the server takes it there")
	}
}

// holdsCredential tells whether a reference in s is a secret: a credential, or a
// variable by its name.
func holdsCredential(s string) bool {
	segs, err := splitReferences(s, false)
	return err == nil && slices.ContainsFunc(segs, func(g segment) bool {
		return g.kind == "credential" || g.kind == "env" && keyNames.MatchString(g.name)
	})
}

// promptReferences checks a prompt. A credential there would be stored and sent
// to a model. In Markdown the place of each reference is known.
func (p *parsed) promptReferences(prompt string, at mark, exact bool) {
	if !strings.Contains(prompt, "${") {
		return
	}
	segs, err := splitReferences(prompt, true)
	if err != nil {
		p.problems = append(p.problems, p.tree.src.problem(at, err.Error(), "${env:NAME} or ${file:NAME}", "write $${ for a literal ${"))
		return
	}
	for _, seg := range segs {
		if seg.kind == "" {
			continue
		}
		here := at
		if exact {
			before := prompt[:seg.offset]
			here.line += int32(strings.Count(before, "\n"))
			here.col = int32(len([]rune(before[strings.LastIndexByte(before, '\n')+1:])) + 1)
		}
		if seg.kind == "credential" {
			p.problems = append(p.problems, p.tree.src.problem(here, "a credential in a prompt would be stored and sent to a model", "${env:NAME} or ${file:NAME}", "give it to a connector instead"))
			continue
		}
		raw := "${" + seg.kind + ":" + seg.name + "}"
		if seg.hasFallback {
			continue
		}
		p.refs = append(p.refs, reference{here, raw, forPrompt})
	}
}

// checkURL wants http or https, unless a reference stands for the beginning.
func (p *parsed) checkURL(at []string, s string) {
	if s == "" || strings.HasPrefix(s, "${") {
		return
	}
	u, err := url.Parse(s)
	if (err != nil && !strings.Contains(s, "${")) || (err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "")) {
		p.complain(at, "bad URL "+quoted(s), "http://… or https://…", "")
	}
}

var hostVariable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}`)

// fromHostForm turns ${VAR} and ${VAR:-x}, as other hosts write them, into our
// own ${env:VAR}.
func fromHostForm(s string) string {
	if !strings.Contains(s, "${") {
		return s
	}
	return hostVariable.ReplaceAllStringFunc(s, func(v string) string { return "${env:" + v[2:] })
}
