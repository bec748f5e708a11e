package db

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
)

// The model of migration 5, frozen.

type taint005 struct {
	bun.BaseModel `bun:"table:taints"`

	Entry string `bun:"entry,pk,type:text"`
	Run   string `bun:"run,notnull"`
	At    int64  `bun:"at,type:bigint,notnull"`
}

func migrate005(ctx context.Context, tx bun.Tx) error {
	if _, err := tx.NewCreateTable().Model((*taint005)(nil)).IfNotExists().Exec(ctx); err != nil {
		return fmt.Errorf("create table of taints: %w", err)
	}
	return nil
}
