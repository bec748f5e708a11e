package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/driver/sqliteshim"
	"github.com/uptrace/bun/schema"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// postgres makes the tests that any database must pass run on PostgreSQL:
// go test ./sqldb -postgres postgres://user@host/database
var postgres = flag.String("postgres", "", "URL of a PostgreSQL database to test on")

// anyDSN is an empty database: a file that is not there, or a schema of its own.
func anyDSN(t *testing.T) string {
	t.Helper()
	if *postgres == "" {
		return filepath.Join(t.TempDir(), "x.db")
	}
	admin, err := sql.Open("pgx", *postgres)
	ok(t, err)
	name := fmt.Sprintf("sqldb_%d", time.Now().UnixNano())
	_, err = admin.ExecContext(ctx, "CREATE SCHEMA "+name)
	ok(t, err)
	t.Cleanup(func() {
		_, err := admin.ExecContext(ctx, "DROP SCHEMA "+name+" CASCADE")
		ok(t, errors.Join(err, admin.Close()))
	})
	separator := "?"
	if strings.Contains(*postgres, "?") {
		separator = "&"
	}
	return *postgres + separator + "search_path=" + name
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		ok(t, err)
		return v
	}
}

// openAny opens a database for writing.
func openAny(t *testing.T, dsn string) *bun.DB {
	t.Helper()
	driver, dialect := sqliteshim.ShimName, schema.Dialect(sqlitedialect.New())
	if IsPostgres(dsn) {
		driver, dialect = "pgx", pgdialect.New()
	} else {
		dsn = "file:" + dsn + "?_pragma=journal_mode(WAL)"
	}
	pool, err := sql.Open(driver, dsn)
	ok(t, err)
	q := bun.NewDB(pool, dialect)
	t.Cleanup(func() { ok(t, q.Close()) })
	return q
}
