// Package config reads the files of the config directory into plain, validated
// structs, and watches them for edits. cmd/runnerd builds one [Loader]; the
// agent loop asks it to [Loader.Freshen] before each decision; the result, a
// [Set], is copied by the caller into the scheduler and the policy database.
//
// What it promises: every complaint is a [Problem] with file, line and column,
// and all complaints about all files come at once. Nothing in a file can make it
// panic, loop or grow without bound. A broken file never removes what worked:
// its last good revision stays in force and is marked stale (DESIGN, section 5).
// The package writes no file, and ${...} references stay unresolved in all that
// it returns; [Resolver] resolves them at use.
package config
