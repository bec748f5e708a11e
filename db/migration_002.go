package db

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
)

// The models of migration 2, frozen.

type delivery002 struct {
	bun.BaseModel `bun:"table:deliveries"`

	Run       string `bun:"run,pk"`
	Place     int    `bun:"place,pk,type:bigint"`
	Kind      string `bun:"kind,notnull"`
	State     string `bun:"state,notnull"`
	Attempts  int    `bun:"attempts,notnull"`
	Error     string `bun:"error,type:text,notnull"`
	NextAt    *int64 `bun:"next_at,type:bigint"`
	UpdatedAt int64  `bun:"updated_at,type:bigint,notnull"`
}

type trouble002 struct {
	bun.BaseModel `bun:"table:troubles"`

	Name      string `bun:"name,pk"`
	Event     string `bun:"event,notnull"`
	Title     string `bun:"title,type:text,notnull"`
	Body      string `bun:"body,type:text,notnull"`
	OpenedAt  int64  `bun:"opened_at,type:bigint,notnull"`
	ToldAt    *int64 `bun:"told_at,type:bigint"`
	ClearedAt *int64 `bun:"cleared_at,type:bigint"`
	Ending    string `bun:"ending,type:text,notnull"`
	EndToldAt *int64 `bun:"end_told_at,type:bigint"`
}

// The partial index holds only runs that still have something to deliver.
var indexes002 = []string{
	"runs_undelivered ON runs (finished_at, id) WHERE delivery = 'pending' AND finished_at IS NOT NULL",
	"troubles_cleared ON troubles (cleared_at)",
}

func migrate002(ctx context.Context, tx bun.Tx) error {
	for _, model := range []any{(*delivery002)(nil), (*trouble002)(nil)} {
		if _, err := tx.NewCreateTable().Model(model).IfNotExists().Exec(ctx); err != nil {
			return fmt.Errorf("create table of %T: %w", model, err)
		}
	}
	for _, index := range indexes002 {
		if _, err := tx.ExecContext(ctx, "CREATE INDEX IF NOT EXISTS "+index); err != nil {
			return fmt.Errorf("create index %s: %w", index, err)
		}
	}
	return nil
}
