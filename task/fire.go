package task

import "time"

// Cursor is how far a task's schedule has been evaluated. It is the durable
// thing about time: next instants are computed, never stored.
type Cursor struct {
	Task             string
	ScheduleRevision string
	// Through is the instant up to which every instant has its row.
	Through time.Time
	// LastFired is the due of the newest occurrence that became a run; zero if
	// none did.
	LastFired time.Time
	// Retired is set when the task's file is gone.
	Retired bool
}

// FireState is a task as it stands inside the fire transaction.
type FireState struct {
	Task string
	// Cursor is the stored one; Known is false on first sight.
	Cursor Cursor
	Known  bool
	// Active are the task's runs that count for overlap, oldest first.
	Active []Run
	// Ran are the due instants after the cursor that have become runs already, under
	// whatever revision, oldest first: a clock that was ahead has fired them, and they
	// do not run again.
	Ran []time.Time
	// Paused is the note of a pause of the task or of everything; empty if none.
	Paused string
}

// FirePlan is what the fire transaction writes for one task, all or nothing.
type FirePlan struct {
	Cursor Cursor
	// Occurrences are inserted; one that exists already (same task, schedule
	// revision and due) is left as it is, and its run is not inserted either.
	Occurrences []Occurrence
	// Runs are inserted as queued; each belongs to the occurrence whose RunID
	// names it.
	Runs []Run
	// Cancel are active runs to end: queued and waiting ones become cancelled in
	// the same transaction (their approvals too), for running ones the caller
	// tells dispatch afterwards.
	Cancel []string
	// Withdraw, if not zero, deletes the rows of the task that are due after it and
	// did not become runs: a clock that went back makes them future again. A range row
	// that reaches beyond it is replaced by what Cut returns for it.
	Withdraw time.Time
	Cut      func(Occurrence) Occurrence
}
