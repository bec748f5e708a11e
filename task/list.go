package task

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"fmt"
)

// List is a list that may be absent. Absent, empty and listed are three
// different things (DESIGN, promise 8): absent means that nobody said anything,
// empty means none. The zero value is absent.
//
// It is null, [] or [...] in JSON and NULL, '[]' or '[...]' in a database.
type List[T any] struct {
	items    []T
	declared bool
}

// ListOf returns a declared list; ListOf[T]() is the empty one, not absent.
func ListOf[T any](items ...T) List[T] {
	return List[T]{items: append([]T{}, items...), declared: true}
}

// Declared tells whether anything was said, an empty list included.
func (l List[T]) Declared() bool { return l.declared }

// Items returns the listed values: nil if absent, empty but not nil if empty.
// The caller must not change them.
func (l List[T]) Items() []T { return l.items }

// Len is the number of listed values, 0 if absent.
func (l List[T]) Len() int { return len(l.items) }

// MarshalJSON writes null, [] or [...].
func (l List[T]) MarshalJSON() ([]byte, error) {
	if !l.declared {
		return []byte("null"), nil
	}
	if len(l.items) == 0 {
		return []byte("[]"), nil
	}
	return json.Marshal(l.items)
}

// UnmarshalJSON reads null as absent and an array as declared.
func (l *List[T]) UnmarshalJSON(data []byte) error {
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		*l = List[T]{}
		return nil
	}
	items := []T{}
	if err := json.Unmarshal(data, &items); err != nil {
		return err
	}
	*l = List[T]{items: items, declared: true}
	return nil
}

// Value stores an absent list as NULL.
func (l List[T]) Value() (driver.Value, error) {
	if !l.declared {
		return nil, nil
	}
	data, err := l.MarshalJSON()
	return string(data), err
}

// Scan reads what Value stored. A value of another shape is an error, so that
// the caller can tell "absent" from "unreadable".
func (l *List[T]) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*l = List[T]{}
		return nil
	case string:
		return l.scanJSON([]byte(v))
	case []byte:
		return l.scanJSON(v)
	}
	return fmt.Errorf("list column: unexpected type %T", src)
}

func (l *List[T]) scanJSON(data []byte) error {
	if t := bytes.TrimSpace(data); len(t) == 0 || t[0] != '[' {
		return fmt.Errorf("list column: want a JSON array, have %q", string(data))
	}
	return l.UnmarshalJSON(data)
}
