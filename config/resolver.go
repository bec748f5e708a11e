package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Bounds on what a reference may bring in.
const (
	maxCredential   = 64 << 10
	maxPromptFile   = 256 << 10
	minSecretLength = 8
	maxSecrets      = 4096
)

// ResolverOptions says where references lead.
type ResolverOptions struct {
	// CredentialDirs are searched in order for ${credential:NAME}: systemd's
	// credentials directory, a directory of the operator's.
	CredentialDirs []string
	// Getenv answers ${env:NAME}; nil knows no variable.
	Getenv func(string) (string, bool)
	// ConfigDir is where ${file:NAME} of a prompt starts from, and ends.
	ConfigDir string
	// OnSecret, if set, is called with all known secrets whenever one is added. It
	// must not call the resolver.
	OnSecret func([]Secret)
}

// Secret is a value that must not show up anywhere.
type Secret struct {
	Name  string // credential:NAME or env:NAME
	Value string
}

// Resolver resolves ${...} references at use and remembers the secret values
// that they resolved to, so that they can be redacted. Safe for concurrent use.
type Resolver struct {
	opts ResolverOptions

	mu      sync.Mutex
	secrets []Secret
	gen     uint64
}

// NewResolver returns a resolver; it reads nothing yet.
func NewResolver(opts ResolverOptions) *Resolver {
	if opts.Getenv == nil {
		opts.Getenv = func(string) (string, bool) { return "", false }
	}
	return &Resolver{opts: opts}
}

// Resolve replaces ${env:NAME} and ${credential:NAME} in s; "$${" becomes "${".
// Values of credentials become known secrets, values of variables do not. The
// error names what is missing and where it was looked for.
func (r *Resolver) Resolve(s string) (string, error) { return r.resolve(s, false, false) }

// ResolveSecret is Resolve for models, connectors' environment and headers, and
// deliveries: there the value of a variable is a secret too, unless it is the path
// of something that is there, as ${env:HOME} in a connector's arguments is: else no
// call could name a file below it.
func (r *Resolver) ResolveSecret(s string) (string, error) { return r.resolve(s, true, false) }

// ResolvePath is Resolve for a path: the ${env:HOME} in it is no secret.
func (r *Resolver) ResolvePath(s string) (string, error) { return r.resolve(s, false, false) }

// ResolvePrompt replaces ${file:NAME} and ${env:NAME} in a prompt. NAME is
// relative to the config directory and cannot leave it; what the file holds is
// not searched for references. A credential is refused, any other ${...} is
// text.
func (r *Resolver) ResolvePrompt(s string) (string, error) { return r.resolve(s, false, true) }

// Known returns the secrets of at least 8 characters that references resolved to
// so far, older values of a rotated credential included.
func (r *Resolver) Known() []Secret {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.secrets)
}

// Generation grows whenever Known does.
func (r *Resolver) Generation() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gen
}

func (r *Resolver) resolve(s string, secretEnv, prompt bool) (string, error) {
	if !strings.Contains(s, "${") {
		return s, nil
	}
	segs, err := splitReferences(s, prompt)
	if err != nil {
		return "", fmt.Errorf("resolve: %w", err)
	}
	var out strings.Builder
	var errs []error
	for _, seg := range segs {
		if seg.kind == "" {
			out.WriteString(seg.literal)
			continue
		}
		v, err := r.value(seg, prompt)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if seg.kind == "credential" || seg.kind == "env" && secretEnv && !seg.open(v) {
			r.remember(Secret{seg.kind + ":" + seg.name, v})
		}
		out.WriteString(v)
	}
	if len(errs) > 0 {
		return "", errors.Join(errs...)
	}
	return out.String(), nil
}

// open tells that the value of a variable is nothing to hide: it stands in the file
// as the fallback, or is an absolute path that exists.
func (s segment) open(value string) bool {
	if s.hasFallback && value == s.fallback {
		return true
	}
	if !filepath.IsAbs(value) {
		return false
	}
	_, err := os.Lstat(value)
	return err == nil
}

func (r *Resolver) value(seg segment, prompt bool) (string, error) {
	switch {
	case seg.kind == "env":
		v, ok := r.opts.Getenv(seg.name)
		if seg.hasFallback && v == "" {
			return seg.fallback, nil
		}
		if !ok {
			return "", fmt.Errorf("${env:%s}: the variable is not set in the daemon's environment", seg.name)
		}
		return v, nil
	case seg.kind == "credential" && !prompt:
		return r.credential(seg.name)
	case seg.kind == "file" && prompt:
		return r.promptFile(seg.name)
	case seg.kind == "credential":
		return "", fmt.Errorf("${credential:%s}: a prompt must not hold a credential", seg.name)
	}
	return "", fmt.Errorf("${file:%s}: only a prompt may hold a file", seg.name)
}

func (r *Resolver) credential(name string) (string, error) {
	if len(r.opts.CredentialDirs) == 0 {
		return "", fmt.Errorf("${credential:%s}: no credentials directory is set", name)
	}
	for _, dir := range r.opts.CredentialDirs {
		data, err := readBounded(os.OpenFile, filepath.Join(dir, name), maxCredential)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("${credential:%s}: %w", name, err)
		}
		v := strings.TrimRight(string(data), "\r\n")
		if v == "" {
			return "", fmt.Errorf("${credential:%s}: %s is empty", name, filepath.Join(dir, name))
		}
		return v, nil
	}
	return "", fmt.Errorf("${credential:%s}: no such file in %s", name, strings.Join(r.opts.CredentialDirs, " or "))
}

func (r *Resolver) promptFile(name string) (string, error) {
	root, err := os.OpenRoot(r.opts.ConfigDir)
	if err != nil {
		return "", fmt.Errorf("${file:%s}: %w", name, err)
	}
	defer root.Close()
	data, err := readBounded(root.OpenFile, name, maxPromptFile)
	if err != nil {
		return "", fmt.Errorf("${file:%s} in %s: %w", name, r.opts.ConfigDir, err)
	}
	return string(data), nil
}

// readBounded reads a regular file of at most limit bytes.
func readBounded(open func(string, int, os.FileMode) (*os.File, error), name string, limit int64) ([]byte, error) {
	f, err := open(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	return data, err
}

func (r *Resolver) remember(s Secret) {
	if len([]rune(s.Value)) < minSecretLength {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.secrets, s) {
		return
	}
	if len(r.secrets) >= maxSecrets {
		r.secrets = slices.Delete(r.secrets, 0, 1)
	}
	r.secrets = append(r.secrets, s)
	r.gen++
	if r.opts.OnSecret != nil {
		r.opts.OnSecret(slices.Clone(r.secrets))
	}
}

// try tells whether s would resolve.
func (r *Resolver) try(s string, why purpose) error {
	var err error
	switch why {
	case forPrompt:
		_, err = r.ResolvePrompt(s)
	case forPath:
		_, err = r.ResolvePath(s)
	default:
		_, err = r.ResolveSecret(s)
	}
	return err
}
