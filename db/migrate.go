package db

import (
	"go.uber.org/zap"

	"runnerd/sqldb"
)

// schema is the main database as this binary knows it.
func schema(log *zap.Logger) sqldb.Schema {
	return sqldb.Schema{
		Kind: Kind, Number: "number", Steps: migrations(),
		Applied: func(s sqldb.Step) {
			log.Info("database migrated", zap.Int("schema", s.Number), zap.String("name", s.Name))
		},
	}
}

// migrations are every step, in order.
func migrations() []sqldb.Step {
	return []sqldb.Step{
		{Number: 1, Name: "first tables", Up: migrate001},
		{Number: 2, Name: "deliveries and troubles", Up: migrate002},
		{Number: 3, Name: "identity", Up: migrate003},
		{Number: 4, Name: "estimated spend", Up: migrate004},
		{Number: 5, Name: "tainted entries", Up: migrate005},
		{Number: 6, Name: "rehearsals", Up: migrate006},
	}
}
