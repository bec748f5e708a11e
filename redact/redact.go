// Package redact replaces known secret values in any text or stream by
// [redacted:NAME]. Whoever writes a transcript, a log line, an audit record or
// a delivery passes the text through a Set first (DESIGN, promise 7). A secret
// is found as it is and in the forms in which programs pass it on: base64,
// percent-encoding, JSON strings and hex, also where such a form is wrapped into
// lines or escaped again. A stream is searched for forms that are not wrapped.
package redact

import (
	"sync"
	"sync/atomic"
)

// MinLength is the length below which a value is no secret, in bytes: shorter
// ones would be found everywhere (DESIGN, section 5).
const MinLength = 8

// Secret is a value that must not appear, and the name that stands for it.
type Secret struct {
	Name  string
	Value string
}

// Set is the secrets known at this moment. It is safe for concurrent use; its
// methods work on a nil Set, which knows no secrets.
type Set struct {
	mu      sync.Mutex // held to change secrets
	secrets []Secret
	index   atomic.Pointer[index]
}

// New returns a Set that knows no secrets.
func New() *Set { return &Set{} }

// Replace makes secrets the whole set. Values shorter than MinLength are left
// out; where two have the same value the first one's name is used.
func (s *Set) Replace(secrets []Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets = nil
	for _, secret := range secrets {
		s.keep(secret)
	}
	s.index.Store(newIndex(s.secrets))
}

// Add adds one secret. A name may have several values: one that was replaced at
// its source may still stand in texts.
func (s *Set) Add(secret Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keep(secret) {
		s.index.Store(newIndex(s.secrets))
	}
}

// keep tells whether the secret is new and long enough.
func (s *Set) keep(secret Secret) bool {
	if len(secret.Value) < MinLength {
		return false
	}
	for _, have := range s.secrets {
		if have.Value == secret.Value {
			return false
		}
	}
	s.secrets = append(s.secrets, secret)
	return true
}

func (s *Set) load() *index {
	if s == nil {
		return nil
	}
	return s.index.Load()
}

// Text returns text without secrets.
func (s *Set) Text(text string) string {
	x := s.load()
	if x == nil {
		return text
	}
	data := []byte(text)
	if clean := redacted(x, data); len(clean) != len(data) || string(clean) != text {
		return string(clean)
	}
	return text
}

// Bytes returns data without secrets; data itself if it holds none.
func (s *Set) Bytes(data []byte) []byte {
	x := s.load()
	if x == nil {
		return data
	}
	return redacted(x, data)
}

// Find returns the name of the first secret that text holds in any form; "" if
// it holds none.
func (s *Set) Find(text string) string {
	x := s.load()
	if x == nil {
		return ""
	}
	if p := x.first([]byte(text)); p != nil {
		return p.name
	}
	if hits := x.hits([]byte(text)); len(hits) > 0 {
		return hits[0].name
	}
	return ""
}

// redacted is data without secrets; data itself if it holds none.
func redacted(x *index, data []byte) []byte {
	if x.first(data) != nil {
		var c cutter
		data = c.finish(c.feed(nil, x, data), x)
	}
	return x.clear(data)
}
