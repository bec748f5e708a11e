package taskpolicy

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"runnerd/policy"
)

// caches keep parsed values by their stored text. The text is read from the
// database every time, so a hit is as fresh as a miss; it only saves the parsing.
type caches struct {
	ids    memo[string, checkedIDs]
	allow  memo[string, []policy.Grant]
	deny   memo[string, []policy.Grant]
	words  memo[string, string]
	ttls   memo[string, time.Duration]
	limits memo[string, policy.Limits]
	rules  memo[layered, parsedRules]
	// latest is what the rows of all connectors said last.
	latest latest[connectorRules]
}

// latest keeps what was made of the latest rows: they are compared, not looked up,
// since all tasks read the same.
type latest[V any] struct {
	mu   sync.Mutex
	rows []string
	v    V
}

// get answers what parse makes of the rows. Errors are not kept.
func (l *latest[V]) get(rows []string, parse func([]string) (V, error)) (V, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rows != nil && slices.Equal(l.rows, rows) {
		return l.v, nil
	}
	v, err := parse(rows)
	if err == nil {
		l.rows, l.v = rows, v
	}
	return v, err
}

// memoMost bounds one memo; a full one starts again.
const memoMost = 512

type memo[K comparable, V any] struct {
	mu    sync.Mutex
	known map[K]V
}

// get answers what parse makes of key. Errors are not kept.
func (m *memo[K, V]) get(key K, parse func(K) (V, error)) (V, error) {
	m.mu.Lock()
	v, ok := m.known[key]
	m.mu.Unlock()
	if ok {
		return v, nil
	}
	v, err := parse(key)
	if err != nil {
		return v, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= memoMost {
		m.known = make(map[K]V)
	}
	m.known[key] = v
	return v, nil
}

// cached sets *to from a stored text.
func cached[V any](m *memo[string, V], name, text string, to *V, parse func(string) (V, error)) error {
	v, err := m.get(text, parse)
	if err != nil {
		return fmt.Errorf("%s is unreadable: %w", name, err)
	}
	*to = v
	return nil
}
