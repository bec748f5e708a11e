package config

import (
	"regexp"
	"strings"
)

// What looks like a key in plain text warns (DESIGN, section 5): a file is copied,
// committed and backed up, and only what came through a reference is redacted.

var (
	// literalVariable is a variable as a shell would write it, which nothing here
	// replaces.
	literalVariable = regexp.MustCompile(`^(?:Bearer |Basic )?(?:\$([A-Za-z_][A-Za-z0-9_]*)|\$\(([A-Za-z_][A-Za-z0-9_]*)\)|%([A-Za-z_][A-Za-z0-9_]*)%)$`)
	// tokenForms are the forms that vendors give to their keys.
	tokenForms = regexp.MustCompile(`\b(?:sk-[A-Za-z0-9_-]{12,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}|xox[a-z]-[A-Za-z0-9-]{10,}|` +
		`AKIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}|pypi-[A-Za-z0-9_-]{20,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.)|-----BEGIN [A-Z ]*PRIVATE KEY`)
	// keyNames are names of variables, headers and keys whose value is a secret.
	keyNames = regexp.MustCompile(`(?i)(^|[_-])(api|access|private|secret|auth|signing)?[_-]?(key|token|secret|passwd|password|pat|credentials?)$|^authorization$|apikey$`)
	// inURL is a name with a password, or a parameter that holds a key.
	inURL = regexp.MustCompile(`(?i)://[^/@\s]*:[^/@\s$]{4,}@|://[^/@:\s$]{16,}@|[?&][a-z_-]*(key|token|secret|password)=[^&$\s]{8,}`)
	digit = regexp.MustCompile(`[0-9]`)
)

// warnPlainSecret warns of a value that looks like a key.
func (p *parsed) warnPlainSecret(at []string, s string) {
	name := at[len(at)-1]
	hint := "put it into a file of the credentials directory and write ${credential:NAME}"
	if m := literalVariable.FindStringSubmatch(s); m != nil {
		p.warn(at, quoted(s)+" is sent as it stands: nothing replaces it", "", "write ${env:"+m[1]+m[2]+m[3]+"} or ${credential:NAME}")
		return
	}
	bare := strings.TrimPrefix(strings.TrimPrefix(s, "Bearer "), "Basic ")
	switch {
	case tokenForms.MatchString(s):
	case inURL.MatchString(s):
	case strings.Contains(s, "${"), strings.HasPrefix(s, "/"), len(bare) < 8, strings.Contains(bare, " "):
		return
	case !keyNames.MatchString(name) || !digit.MatchString(bare):
		return
	}
	p.warn(at, "this looks like a key in plain text", "", hint)
}
