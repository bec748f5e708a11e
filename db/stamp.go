package db

import (
	"database/sql/driver"
	"fmt"
	"time"
)

// stamp is the one form in which this package stores a time: an INTEGER of
// microseconds since the Unix epoch, NULL for the zero time. bun and
// database/sql write times as text in different forms, and comparisons in a
// column that mixes them are wrong; integers compare alike everywhere.
type stamp struct{ t time.Time }

// at makes a stamp. What is finer than a microsecond is cut off.
func at(t time.Time) stamp {
	if t.IsZero() {
		return stamp{}
	}
	return stamp{time.UnixMicro(t.UnixMicro()).UTC()}
}

// micros is the stored integer, for conditions written as SQL.
func micros(t time.Time) int64 { return t.UnixMicro() }

// Value implements driver.Valuer.
func (s stamp) Value() (driver.Value, error) {
	if s.t.IsZero() {
		return nil, nil
	}
	return s.t.UnixMicro(), nil
}

// Scan implements sql.Scanner.
func (s *stamp) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		s.t = time.Time{}
	case int64:
		s.t = time.UnixMicro(v).UTC()
	default:
		return fmt.Errorf("time column: want an integer of microseconds, have %T", src)
	}
	return nil
}
