package taskpolicy

import (
	"context"
	"fmt"
)

// Ping tells whether the database answers a read, for the watchdog.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := s.reading(ctx)
	defer cancel()
	var one int
	if err := s.sql.Read.NewRaw("SELECT 1").Scan(ctx, &one); err != nil {
		return fmt.Errorf("ping policy database: %w", err)
	}
	return nil
}
