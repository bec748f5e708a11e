package db

import "context"

// Backup writes a compact copy of a SQLite database, as it stands at this
// moment, to a path where nothing may stand yet. Writers go on meanwhile. The
// context alone bounds how long it may take.
func (d *DB) Backup(ctx context.Context, path string) error {
	return wrap("back up database to "+path, d.sql.Backup(ctx, path))
}

// Check reads the whole SQLite file and answers ErrCorrupt with what is wrong.
// The context alone bounds how long it may take.
func (d *DB) Check(ctx context.Context) error {
	return wrap("check database "+d.name(), d.sql.Check(ctx))
}
