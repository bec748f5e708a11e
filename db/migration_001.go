package db

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
)

// The models of migration 1, frozen. Times are microseconds (see stamp).

type session001 struct {
	bun.BaseModel `bun:"table:sessions"`

	ID          string `bun:"id,pk"`
	LastSeq     int64  `bun:"last_seq,type:bigint,notnull"`
	WindowStart int64  `bun:"window_start,type:bigint,notnull"`
	CreatedAt   int64  `bun:"created_at,type:bigint,notnull"`
}

type message001 struct {
	bun.BaseModel `bun:"table:messages"`

	Session string `bun:"session,pk"`
	Seq     int64  `bun:"seq,pk,type:bigint"`
	Run     string `bun:"run,notnull"`
	Step    int    `bun:"step,notnull"`
	Role    string `bun:"role,notnull"`
	At      int64  `bun:"at,type:bigint,notnull"`
	Body    string `bun:"body,type:text,notnull"`
	Opaque  []byte `bun:"opaque"`
}

type run001 struct {
	bun.BaseModel `bun:"table:runs"`

	ID           string `bun:"id,pk"`
	Task         string `bun:"task,notnull"`
	Session      string `bun:"session,notnull"`
	Revision     string `bun:"revision,notnull"`
	Due          *int64 `bun:"due,type:bigint"`
	TriggerKind  string `bun:"trigger_kind,notnull"`
	Attempt      int    `bun:"attempt,notnull"`
	NotBefore    int64  `bun:"not_before,type:bigint,notnull"`
	Execution    string `bun:"execution,notnull"`
	Outcome      string `bun:"outcome,notnull"`
	Delivery     string `bun:"delivery,notnull"`
	Marks        string `bun:"marks,type:text,notnull"`
	Reason       string `bun:"reason,type:text,notnull"`
	CreatedAt    int64  `bun:"created_at,type:bigint,notnull"`
	StartedAt    *int64 `bun:"started_at,type:bigint"`
	FinishedAt   *int64 `bun:"finished_at,type:bigint"`
	Wall         int64  `bun:"wall,type:bigint,notnull"`
	InputTokens  int64  `bun:"input_tokens,type:bigint,notnull"`
	OutputTokens int64  `bun:"output_tokens,type:bigint,notnull"`
	CacheRead    int64  `bun:"cache_read,type:bigint,notnull"`
	CacheWrite   int64  `bun:"cache_write,type:bigint,notnull"`
	Cost         *int64 `bun:"cost,type:bigint"`
	Steps        int    `bun:"steps,notnull"`
	Calls        int    `bun:"calls,notnull"`
	Output       string `bun:"output,type:text,notnull"`
}

// The key is in this order so that it also serves "the occurrences of a task by
// due".
type occurrence001 struct {
	bun.BaseModel `bun:"table:occurrences"`

	Task             string  `bun:"task,pk"`
	Due              int64   `bun:"due,pk,type:bigint"`
	ScheduleRevision string  `bun:"schedule_revision,pk"`
	Until            *int64  `bun:"until,type:bigint"`
	Instants         int     `bun:"instants,notnull"`
	Ending           string  `bun:"ending,notnull"`
	Reason           string  `bun:"reason,type:text,notnull"`
	RunID            *string `bun:"run_id"`
	RecordedAt       int64   `bun:"recorded_at,type:bigint,notnull"`
}

type cursor001 struct {
	bun.BaseModel `bun:"table:cursors"`

	Task             string `bun:"task,pk"`
	ScheduleRevision string `bun:"schedule_revision,notnull"`
	Through          *int64 `bun:"through,type:bigint"`
	LastFired        *int64 `bun:"last_fired,type:bigint"`
	Retired          bool   `bun:"retired,notnull"`
}

type receipt001 struct {
	bun.BaseModel `bun:"table:receipts"`

	Seq        int64  `bun:"seq,pk,autoincrement"`
	Run        string `bun:"run,notnull"`
	Task       string `bun:"task,notnull"`
	Step       int    `bun:"step,notnull"`
	CallID     string `bun:"call_id,notnull"`
	Connector  string `bun:"connector,notnull"`
	Tool       string `bun:"tool,notnull"`
	Class      string `bun:"class,notnull"`
	Definition string `bun:"definition,notnull"`
	Decision   string `bun:"decision,notnull"`
	Code       string `bun:"code,notnull"`
	Rule       string `bun:"rule,type:text,notnull"`
	ArgsHash   string `bun:"args_hash,notnull"`
	Outcome    string `bun:"outcome,notnull"`
	ApprovalID string `bun:"approval_id,notnull"`
	StartedAt  *int64 `bun:"started_at,type:bigint"`
	FinishedAt *int64 `bun:"finished_at,type:bigint"`
}

type link001 struct {
	bun.BaseModel `bun:"table:receipt_chain"`

	Seq     int64  `bun:"seq,pk"`
	Receipt int64  `bun:"receipt,type:bigint,notnull"`
	Kind    string `bun:"kind,notnull"`
	Content []byte `bun:"content,notnull"`
	Hash    []byte `bun:"hash,notnull"`
	Pruned  bool   `bun:"pruned,notnull"`
}

type chain001 struct {
	bun.BaseModel `bun:"table:chain_ends"`

	Name     string `bun:"name,pk"`
	BaseSeq  int64  `bun:"base_seq,type:bigint,notnull"`
	BaseHash []byte `bun:"base_hash,notnull"`
	HeadSeq  int64  `bun:"head_seq,type:bigint,notnull"`
	HeadHash []byte `bun:"head_hash,notnull"`
}

type approval001 struct {
	bun.BaseModel `bun:"table:approvals"`

	ID         string `bun:"id,pk"`
	Run        string `bun:"run,notnull"`
	Task       string `bun:"task,notnull"`
	Step       int    `bun:"step,notnull"`
	CallID     string `bun:"call_id,notnull"`
	Connector  string `bun:"connector,notnull"`
	Tool       string `bun:"tool,notnull"`
	Class      string `bun:"class,notnull"`
	Definition string `bun:"definition,notnull"`
	Arguments  []byte `bun:"arguments,notnull"`
	ArgsHash   string `bun:"args_hash,notnull"`
	Preview    string `bun:"preview,type:text,notnull"`
	State      string `bun:"state,notnull"`
	DecidedBy  string `bun:"decided_by,notnull"`
	Reason     string `bun:"reason,type:text,notnull"`
	CreatedAt  int64  `bun:"created_at,type:bigint,notnull"`
	ExpiresAt  *int64 `bun:"expires_at,type:bigint"`
	DecidedAt  *int64 `bun:"decided_at,type:bigint"`
}

type revision001 struct {
	bun.BaseModel `bun:"table:revisions"`

	Hash    string `bun:"hash,pk"`
	Task    string `bun:"task,notnull"`
	Body    string `bun:"body,type:text,notnull"`
	SavedAt int64  `bun:"saved_at,type:bigint,notnull"`
}

type schedule001 struct {
	bun.BaseModel `bun:"table:schedules"`

	Revision string `bun:"revision,pk"`
	Body     string `bun:"body,type:text,notnull"`
}

type file001 struct {
	bun.BaseModel `bun:"table:files"`

	Path    string `bun:"path,pk"`
	Hash    string `bun:"hash,notnull"`
	Content []byte `bun:"content,notnull"`
	SavedAt int64  `bun:"saved_at,type:bigint,notnull"`
}

type spend001 struct {
	bun.BaseModel `bun:"table:spend"`

	Task         string `bun:"task,pk"`
	Day          string `bun:"day,pk"`
	InputTokens  int64  `bun:"input_tokens,type:bigint,notnull"`
	OutputTokens int64  `bun:"output_tokens,type:bigint,notnull"`
	CacheRead    int64  `bun:"cache_read,type:bigint,notnull"`
	CacheWrite   int64  `bun:"cache_write,type:bigint,notnull"`
	Cost         *int64 `bun:"cost,type:bigint"`
}

type pause001 struct {
	bun.BaseModel `bun:"table:pauses"`

	Task     string `bun:"task,pk"`
	Note     string `bun:"note,type:text,notnull"`
	PausedBy string `bun:"paused_by,notnull"`
	At       int64  `bun:"at,type:bigint,notnull"`
}

type spool001 struct {
	bun.BaseModel `bun:"table:spools"`

	Receipt int64  `bun:"receipt,pk"`
	Run     string `bun:"run,notnull"`
	Size    int64  `bun:"size,type:bigint,notnull"`
	Whole   int64  `bun:"whole,type:bigint,notnull"`
	Body    []byte `bun:"body,notnull"`
}

type event001 struct {
	bun.BaseModel `bun:"table:events"`

	Seq  int64  `bun:"seq,pk,autoincrement"`
	At   int64  `bun:"at,type:bigint,notnull"`
	Kind string `bun:"kind,notnull"`
	Task string `bun:"task,notnull"`
	Run  string `bun:"run,notnull"`
	Ref  string `bun:"ref,notnull"`
}

// Partial indexes hold active runs only ("finished_at IS NULL"), so that what the
// scheduler and the workers ask for does not grow with the history.
var indexes001 = []string{
	"messages_run ON messages (run, seq)",
	"runs_newest ON runs (created_at, id)",
	"runs_task_newest ON runs (task, created_at, id)",
	"runs_active_task ON runs (task) WHERE finished_at IS NULL",
	"runs_active_session ON runs (session) WHERE finished_at IS NULL",
	"runs_active ON runs (execution, not_before, created_at, id) WHERE finished_at IS NULL",
	"receipts_run ON receipts (run, seq)",
	"receipts_task ON receipts (task, seq)",
	"receipt_chain_receipt ON receipt_chain (receipt)",
	"approvals_newest ON approvals (created_at, id)",
	"approvals_run ON approvals (run)",
	"approvals_pending ON approvals (expires_at) WHERE state = 'pending'",
	"spools_size ON spools (receipt, size)",
	"spools_run ON spools (run)",
	"events_run ON events (run, seq)",
	"spend_day ON spend (day, task)",
}

func migrate001(ctx context.Context, tx bun.Tx) error {
	models := []any{
		(*session001)(nil), (*message001)(nil), (*run001)(nil), (*occurrence001)(nil), (*cursor001)(nil),
		(*receipt001)(nil), (*link001)(nil), (*chain001)(nil), (*approval001)(nil), (*revision001)(nil),
		(*schedule001)(nil), (*file001)(nil), (*spend001)(nil), (*pause001)(nil), (*spool001)(nil), (*event001)(nil),
	}
	for _, model := range models {
		if _, err := tx.NewCreateTable().Model(model).IfNotExists().Exec(ctx); err != nil {
			return fmt.Errorf("create table of %T: %w", model, err)
		}
	}
	for _, index := range indexes001 {
		if _, err := tx.ExecContext(ctx, "CREATE INDEX IF NOT EXISTS "+index); err != nil {
			return fmt.Errorf("create index %s: %w", index, err)
		}
	}
	return nil
}
