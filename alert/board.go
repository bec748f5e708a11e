package alert

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"runnerd/task"
)

// Store remembers troubles. The db package implements it.
type Store interface {
	// Troubles lists those that are open and those whose end nobody was told of.
	Troubles(ctx context.Context) ([]task.Trouble, error)
	// SaveTrouble stores one as it stands.
	SaveTrouble(ctx context.Context, t task.Trouble) error
}

// Recipient is one entry of `notify:`.
type Recipient struct {
	To task.Delivery
	// Events are those that are told; nil means all.
	Events []string
}

func (r Recipient) wants(event string) bool {
	return r.Events == nil || slices.Contains(r.Events, event)
}

// Options are a Board's settings. Store and Tell are required.
type Options struct {
	Store Store
	// Tell takes one notice to one destination. It may take minutes but must end
	// with ctx.
	Tell func(ctx context.Context, to task.Delivery, title, text string) error
	// Host is named in each title, so that people with several daemons know which
	// one speaks; empty: it is not.
	Host string
	// Burst is how many notices may go out at once, Pace after how long there is
	// room for one more; 5 and 1 minute.
	Burst int
	Pace  time.Duration
	// Settle is how long a notice waits for others of the same moment; 2 s.
	Settle time.Duration
	Logger *zap.Logger
}

// maxOpen bounds the troubles kept at a time; beyond it new ones are logged only.
const maxOpen = 2000

// Board is where troubles stand. Safe for concurrent use.
type Board struct {
	opts Options
	log  *zap.Logger
	wake chan struct{} // capacity 1

	mu         sync.Mutex
	troubles   map[string]*entry
	recipients []Recipient
}

// entry is a trouble and what is still to be done about it.
type entry struct {
	task.Trouble
	dirty bool // not stored as it stands
	// tries and next are of a notice that did not reach everybody; left are those
	// it did not reach.
	tries int
	next  time.Time
	left  []Recipient
}

// New returns a Board; it does no I/O.
func New(o Options) *Board {
	if o.Burst <= 0 {
		o.Burst = 5
	}
	if o.Pace <= 0 {
		o.Pace = time.Minute
	}
	if o.Settle <= 0 {
		o.Settle = 2 * time.Second
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return &Board{opts: o, log: o.Logger, wake: make(chan struct{}, 1), troubles: map[string]*entry{}}
}

// SetRecipients says whom to tell from now on. Who is new is told of what is open
// and was never told to anybody.
func (b *Board) SetRecipients(list []Recipient) {
	b.mu.Lock()
	b.recipients = slices.Clone(list)
	b.mu.Unlock()
	b.poke()
}

// Raise says that a trouble is there. One that is open already stays as it is:
// it was told. Key, Event, Title and Text are taken from t.
func (b *Board) Raise(t task.Trouble) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.raise(t) {
		b.poke()
	}
}

func (b *Board) raise(t task.Trouble) (changed bool) {
	old := b.troubles[t.Key]
	if old != nil && old.ClearedAt.IsZero() {
		return false
	}
	if old == nil && len(b.troubles) >= maxOpen {
		b.log.Error("trouble not kept: there are too many", zap.String(keyTrouble, t.Key), zap.String(keyTitle, t.Title))
		return false
	}
	fresh := task.Trouble{Key: t.Key, Event: t.Event, Title: t.Title, Text: t.Text, OpenedAt: time.Now()}
	if old != nil && !old.ToldAt.IsZero() && old.EndToldAt.IsZero() {
		// It came back before anybody was told that it was over: it is the same.
		fresh.OpenedAt, fresh.ToldAt = old.OpenedAt, old.ToldAt
	}
	b.troubles[t.Key] = &entry{Trouble: fresh, dirty: true}
	b.log.Warn("trouble", zap.String(keyTrouble, t.Key), zap.String(keyTitle, t.Title))
	return true
}

// Clear says that a trouble is over, and how. Nothing happens if it is not open.
func (b *Board) Clear(key, ending string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.clear(key, ending) {
		b.poke()
	}
}

func (b *Board) clear(key, ending string) (changed bool) {
	e := b.troubles[key]
	if e == nil || !e.ClearedAt.IsZero() {
		return false
	}
	e.ClearedAt, e.Ending, e.dirty, e.tries, e.next, e.left = time.Now(), ending, true, 0, time.Time{}, nil
	b.log.Info("trouble over", zap.String(keyTrouble, key), zap.String("ending", ending))
	return true
}

// Drop ends the troubles whose keys begin with prefix and says nothing to
// anybody: another trouble took their place, or what they were about is gone.
func (b *Board) Drop(prefix string) {
	b.mu.Lock()
	for key, e := range b.troubles {
		if strings.HasPrefix(key, prefix) && e.ClearedAt.IsZero() {
			b.drop(e)
		}
	}
	b.mu.Unlock()
	b.poke()
}

func (b *Board) drop(e *entry) {
	now := time.Now()
	e.ClearedAt, e.EndToldAt, e.dirty = now, now, true
}

// Settle makes the open troubles whose keys begin with prefix exactly those of
// now: new ones are raised, those that are not there any more are cleared.
func (b *Board) Settle(prefix string, now []task.Trouble, ending string) {
	b.mu.Lock()
	there := map[string]bool{}
	for _, t := range now {
		there[t.Key] = true
		b.raise(t)
	}
	for key, e := range b.troubles {
		if strings.HasPrefix(key, prefix) && !there[key] && e.ClearedAt.IsZero() {
			b.clear(key, ending)
		}
	}
	b.mu.Unlock()
	b.poke()
}

// Open lists the open troubles, the oldest first, whose keys begin with prefix.
func (b *Board) Open(prefix string) []task.Trouble {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []task.Trouble
	for _, e := range b.troubles {
		if strings.HasPrefix(e.Key, prefix) && e.ClearedAt.IsZero() {
			list = append(list, e.Trouble)
		}
	}
	slices.SortFunc(list, func(x, y task.Trouble) int {
		return cmp.Or(x.OpenedAt.Compare(y.OpenedAt), cmp.Compare(x.Key, y.Key))
	})
	return list
}

// Load reads what was told before. It is called before anything is raised;
// without it, or if it fails, a restart may tell a trouble again. It does not
// replace what was raised meanwhile.
func (b *Board) Load(ctx context.Context) error {
	list, err := b.opts.Store.Troubles(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range list {
		if b.troubles[t.Key] == nil {
			b.troubles[t.Key] = &entry{Trouble: t}
		}
	}
	return nil
}

func (b *Board) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// store writes what changed. What cannot be written stays to be written.
func (b *Board) store(ctx context.Context) (err error) {
	b.mu.Lock()
	var changed []task.Trouble
	for _, key := range slices.Sorted(maps.Keys(b.troubles)) {
		if e := b.troubles[key]; e.dirty {
			changed = append(changed, e.Trouble)
		}
	}
	b.mu.Unlock()
	for _, t := range changed {
		if err = b.opts.Store.SaveTrouble(ctx, t); err != nil {
			return err
		}
		b.mu.Lock()
		if e := b.troubles[t.Key]; e != nil && e.Trouble == t {
			e.dirty = false
			if e.settled() {
				delete(b.troubles, t.Key)
			}
		}
		b.mu.Unlock()
	}
	return nil
}

// settled tells whether nothing is to be done any more: it is over, and its end
// was told or its beginning never was.
func (e *entry) settled() bool {
	return !e.ClearedAt.IsZero() && (e.ToldAt.IsZero() || !e.EndToldAt.IsZero())
}
