package task

import "time"

// Occurrence is one scheduled instant of a task. Its identity is (Task,
// ScheduleRevision, Due); it ends in exactly one row (DESIGN, promise 1).
type Occurrence struct {
	Task             string
	ScheduleRevision string
	// Due is the scheduled instant, never jittered, in UTC.
	Due time.Time
	// Until is set on a range row only: one row for Count instants from Due to
	// Until, written where more than 1,000 of a task were missed at once.
	Until  time.Time
	Count  int
	End    End
	Reason string
	// RunID is set when End is EndRun.
	RunID      string
	RecordedAt time.Time
}

// End is how an occurrence ended.
type End string

// The ends.
const (
	EndRun     End = "run"
	EndSkipped End = "skipped"
	EndMissed  End = "missed"
)

// Reasons that an occurrence was skipped or missed. They are stored and shown,
// alone or followed by a colon and a detail (the note of a pause, the run that
// was active).
const (
	ReasonOverlap         = "overlap"          // an earlier run was still active
	ReasonPaused          = "paused"           // the task or the daemon was paused
	ReasonDisabled        = "disabled"         // enabled: false
	ReasonBudget          = "budget"           // the daily budget was spent
	ReasonDown            = "down"             // the daemon did not run
	ReasonStepped         = "clock stepped"    // the clock was set forward past it
	ReasonWindow          = "window passed"    // older than catch_up_window
	ReasonSuperseded      = "newer instant"    // catch_up: once ran a newer one
	ReasonScheduleChanged = "schedule changed" // the file was edited first
	ReasonReplaced        = "replaced"         // overlap: replace ended it
	ReasonQueueFull       = "already queued"   // overlap: queue holds one
	ReasonPast            = "already past"     // a single instant that was past when first seen
)
