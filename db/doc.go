// Package db is the main database: sessions and their transcripts, runs,
// occurrences, cursors, receipts, approvals, spend, pauses, deliveries, troubles,
// accepted revisions and the event log. cmd/runnerd opens it and hands it to scheduler, dispatch,
// agentloop and control, each of which states what it needs as an interface of
// its own; *DB satisfies them all.
//
// It promises that each write is one transaction and durable when the call
// returns, that there is one writer at a time, and that a run moves only where
// task.Execution.CanMove lets it. SQLite through sqliteshim is the default; the
// same queries run on PostgreSQL.
//
// Times are stored in one form, integer microseconds since the Unix epoch, and
// come back in UTC; see stamp. Nothing here decides anything: no schedule, no
// policy.
package db
