package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func testResolver(t *testing.T, seen func([]Secret)) (*Resolver, string) {
	t.Helper()
	first, second, conf := t.TempDir(), t.TempDir(), t.TempDir()
	env := map[string]string{"HOME": "/home/someone", "TOKEN": "env-token-value", "EMPTY": ""}
	for path, text := range map[string]string{
		first + "/key": "first-secret\n", second + "/key": "shadowed-secret", second + "/pem": "line one\nline two\r\n\n", second + "/pin": "1234\n",
		second + "/empty": "\n", second + "/big": strings.Repeat("x", maxCredential+1), conf + "/style.md": "Be kind. ${credential:key}\n", conf + "/big.md": strings.Repeat("x", maxPromptFile+1),
	} {
		try(t, os.WriteFile(path, []byte(text), 0o600))
	}
	try(t, os.Symlink("/etc/passwd", conf+"/out.md"), os.Mkdir(second+"/dir", 0o700))
	return NewResolver(ResolverOptions{
		CredentialDirs: []string{first, second}, ConfigDir: conf, OnSecret: seen,
		Getenv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}), first
}

func TestResolve(t *testing.T) {
	r, first := testResolver(t, nil)
	second := filepath.Base(r.opts.CredentialDirs[1])
	for _, tt := range []struct{ in, want, err string }{
		{"plain $HOME {x}", "plain $HOME {x}", ""},
		{"Bearer ${credential:key}!", "Bearer first-secret!", ""},
		{"${credential:pem}", "line one\nline two", ""},
		{"${env:HOME}/x", "/home/someone/x", ""},
		{"${env:NOPE:-fallback}-${env:EMPTY:-e}-${env:EMPTY}", "fallback-e-", ""},
		{"$${env:HOME} $$${env:HOME}", "${env:HOME} $${env:HOME}", ""},
		{"${env:NOPE}", "", "${env:NOPE}: the variable is not set in the daemon's environment"},
		{"${credential:nope}", "", "${credential:nope}: no such file in " + first + " or "},
		{"${credential:empty}", "", second + "/empty is empty"},
		{"${credential:big}", "", "is larger than 65536 bytes"},
		{"${credential:dir}", "", "is not a regular file"},
		{"${credential:../key}", "", `bad credential name "../key"`},
		{"${credential:}", "", `bad credential name ""`},
		{"${env:A B}", "", `bad variable name "A B"`},
		{"${file:style.md}", "", "only a prompt may hold a file"},
		{"${secret:x}", "", `unknown reference "${secret:x}"`},
		{"${env:HOME", "", "is not closed"},
	} {
		got, err := r.Resolve(tt.in)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %q, %v", tt.in, got, err)
		}
	}
	if _, err := r.Resolve("${env:NOPE} ${credential:nope}"); err == nil || strings.Count(err.Error(), "nope")+strings.Count(err.Error(), "NOPE") != 2 {
		t.Errorf("not both are named: %v", err)
	}
	if _, err := NewResolver(ResolverOptions{}).Resolve("${credential:key}"); err == nil || !strings.Contains(err.Error(), "no credentials directory") {
		t.Errorf("err = %v", err)
	}
}

func TestResolvePrompt(t *testing.T) {
	r, _ := testResolver(t, nil)
	for _, tt := range []struct{ in, want, err string }{
		{"Do ${file:style.md}in ${env:HOME}; run echo ${X} ${Y:-z} ${", "Do Be kind. ${credential:key}\nin /home/someone; run echo ${X} ${Y:-z} ${", ""},
		{"$${file:style.md}", "${file:style.md}", ""},
		{"${credential:key}", "", "must not hold a credential"},
		{"${file:nope.md}", "", "${file:nope.md} in "},
		{"${file:../x}", "", "want a path inside the config directory"},
		{"${file:/etc/passwd}", "", "want a path inside the config directory"},
		{"${file:out.md}", "", "escapes"},
		{"${file:big.md}", "", "is larger than"},
	} {
		got, err := r.ResolvePrompt(tt.in)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %q, %v", tt.in, got, err)
		}
	}
	if len(r.Known()) != 0 {
		t.Errorf("secrets = %v", r.Known())
	}
}

func TestKnownSecrets(t *testing.T) {
	var told [][]Secret
	r, first := testResolver(t, func(all []Secret) { told = append(told, all) })
	resolve := func(f func(string) (string, error), s string) {
		t.Helper()
		if _, err := f(s); err != nil {
			t.Fatal(err)
		}
	}
	resolve(r.ResolvePath, "${env:HOME}/x")
	resolve(r.Resolve, "${env:TOKEN}")
	resolve(r.Resolve, "${credential:pin}") // too short to redact
	resolve(r.ResolveSecret, "${env:NOPE:-a fallback that stands in the file}")
	if len(r.Known()) != 0 || r.Generation() != 0 {
		t.Fatalf("secrets = %v", r.Known())
	}
	resolve(r.ResolvePath, "/x/${credential:key}")
	resolve(r.ResolveSecret, "a ${env:TOKEN} b ${credential:key}")
	want := []Secret{{"credential:key", "first-secret"}, {"env:TOKEN", "env-token-value"}}
	if got := r.Known(); !slices.Equal(got, want) || r.Generation() != 2 || len(told) != 2 || !slices.Equal(told[1], want) {
		t.Errorf("secrets = %v, generation %d, told %v", got, r.Generation(), told)
	}
	try(t, os.WriteFile(first+"/key", []byte("rotated-secret"), 0o600))
	resolve(r.Resolve, "${credential:key}")
	if got := r.Known(); len(got) != 3 || got[2].Value != "rotated-secret" {
		t.Errorf("after rotation: %v", got)
	}
}

func TestMissing(t *testing.T) {
	d := newDir(t, base(map[string]string{
		"models.yaml":  "models:\n  default: {provider: openai, model: m, api_key: \"${credential:openai}\", base_url: \"${env:BASE:-http://x}\"}\n",
		"tasks/t.md":   "---\ndeliver: [{to: notify, url: \"${env:NTFY}\"}]\n---\nRead\n  ${file:notes.md} and ${file:there.md}, ${env:WHO}.\n",
		"there.md":     "x",
		"tasks/b.yaml": "prompt: |\n  a\n  ${file:gone.md}\n",
	}))
	s := load(t, d.loader())
	if len(s.Problems) > 0 {
		t.Fatal(texts(s.Problems))
	}
	r := NewResolver(ResolverOptions{ConfigDir: d.path, CredentialDirs: []string{"/nonexistent"}})
	got := texts(s.Missing(r))
	want := []string{
		"models.yaml:2:50: ${credential:openai}: no such file in /nonexistent",
		"tasks/b.yaml:1:9: ${file:gone.md}*",
		"tasks/t.md:2:29: ${env:NTFY}: the variable is not set in the daemon's environment",
		"tasks/t.md:5:3: ${file:notes.md} in *",
		"tasks/t.md:5:42: ${env:WHO}: the variable is not set in the daemon's environment",
	}
	if !slices.EqualFunc(got, want, sameText) {
		t.Errorf("got %q", got)
	}
}

// A long text of what looks like references takes no time that anyone notices.
func TestManyDollars(t *testing.T) {
	r := NewResolver(ResolverOptions{})
	for _, unit := range []string{"$", "${", "$${", "${env:", "${a}"} {
		s := strings.Repeat(unit, maxFile/4/len(unit))
		start := time.Now()
		_, _ = r.ResolvePrompt(s)
		_, _ = r.Resolve(s)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%q: %v", unit, took)
		}
	}
}
