package taskpolicy

import (
	"database/sql"
	"fmt"
	"sync"
	"time"

	"runnerd/policy"
)

// caches keep parsed values by their stored text. The text is read from the
// database every time, so a hit is as fresh as a miss; it only saves the parsing.
type caches struct {
	ids    memo[string, checkedIDs]
	grants memo[string, []policy.Grant]
	texts  memo[string, string]
	ttls   memo[string, time.Duration]
	limits memo[string, policy.Limits]
	rules  memo[rulesKey, policy.ConnectorRules]
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

// cached sets *to from a stored text; NULL leaves it as it is.
func cached[V any](m *memo[string, V], name string, text sql.NullString, to *V, parse func(string) (V, error)) error {
	if !text.Valid {
		return nil
	}
	v, err := m.get(text.String, parse)
	if err != nil {
		return fmt.Errorf("%s is unreadable: %w", name, err)
	}
	*to = v
	return nil
}
