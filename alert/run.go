package alert

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"runnerd/task"
)

// Keys of log lines.
const (
	keyTrouble = "trouble"
	keyTitle   = "title"
)

// Bounds of the board's work.
const (
	storeWait  = 10 * time.Second
	storePause = time.Minute // after a write that failed
	maxTries   = 8           // of one notice
	maxLines   = 50          // of a notice that stands for many
)

// Run tells until ctx ends.
func (b *Board) Run(ctx context.Context) error {
	bucket := &bucket{room: b.opts.Burst, last: time.Now(), burst: b.opts.Burst, pace: b.opts.Pace}
	var storeAt time.Time // not before
	for ctx.Err() == nil {
		now := time.Now()
		next := storeAt
		if !now.Before(storeAt) {
			if next = b.write(ctx); !next.IsZero() {
				storeAt = next
			}
		}
		due, later := b.due(now)
		next = earlier(next, later)
		if len(due) > 0 {
			if at := bucket.ready(now); at.After(now) {
				next = earlier(next, at)
			} else {
				b.send(ctx, bucket, due)
				b.poke()
			}
		}
		b.rest(ctx, next)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWait)
	defer cancel()
	if err := b.store(last); err != nil {
		b.log.Error("troubles not stored", zap.Error(err))
	}
	return nil
}

// write stores and answers when to try again, zero if all is stored. That it
// could not be stored holds up no notice.
func (b *Board) write(ctx context.Context) time.Time {
	bounded, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	if err := b.store(bounded); err != nil && ctx.Err() == nil {
		b.log.Error("troubles not stored", zap.Error(err))
		return time.Now().Add(storePause)
	}
	return time.Time{}
}

func (b *Board) rest(ctx context.Context, next time.Time) {
	var due <-chan time.Time
	if !next.IsZero() {
		t := time.NewTimer(time.Until(next))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-b.wake:
	case <-due:
	case <-ctx.Done():
	}
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// bucket lets burst notices out at once and one more each pace.
type bucket struct {
	room, burst int
	last        time.Time
	pace        time.Duration
}

// ready answers when there is room for a notice.
func (k *bucket) ready(now time.Time) time.Time {
	for k.room < k.burst && !now.Before(k.last.Add(k.pace)) {
		k.room++
		k.last = k.last.Add(k.pace)
	}
	if k.room == k.burst {
		k.last = now
	}
	if k.room > 0 {
		return now
	}
	return k.last.Add(k.pace)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// notice is one trouble's beginning or end, for those who are still to hear it.
type notice struct {
	trouble task.Trouble
	over    bool
	to      []Recipient
}

// due lists what is to be told now, the oldest first, and when the next will be.
// What was over before anybody was told of it is never told.
func (b *Board) due(now time.Time) (list []notice, later time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.troubles {
		n := notice{trouble: e.Trouble, over: !e.ClearedAt.IsZero(), to: e.left}
		since := e.OpenedAt
		switch {
		case n.over && (e.ToldAt.IsZero() || !e.EndToldAt.IsZero()), !n.over && !e.ToldAt.IsZero():
			continue
		case n.over:
			since = e.ClearedAt
		}
		if n.to == nil {
			n.to = b.wanting(e.Event)
		}
		if len(n.to) == 0 && !n.over {
			continue // nobody to tell yet
		}
		at := latest(since.Add(b.opts.Settle), e.next)
		if at.After(now) {
			later = earlier(later, at)
			continue
		}
		list = append(list, n)
	}
	slices.SortFunc(list, func(x, y notice) int {
		return cmp.Or(x.trouble.OpenedAt.Compare(y.trouble.OpenedAt), cmp.Compare(x.trouble.Key, y.trouble.Key))
	})
	return list, later
}

func (b *Board) wanting(event string) []Recipient {
	var list []Recipient
	for _, r := range b.recipients {
		if r.wants(event) {
			list = append(list, r)
		}
	}
	return list
}

// send tells what is due: one by one while there is room for each, else all that
// is left as one.
func (b *Board) send(ctx context.Context, k *bucket, due []notice) {
	for len(due) > 0 && k.room > 0 && ctx.Err() == nil {
		n := 1
		if k.room < len(due) && k.room == 1 {
			n = len(due)
		}
		k.room--
		b.tell(ctx, due[:n])
		due = due[n:]
	}
}

// tell sends one notice about one or more troubles to everybody concerned, at
// the same time.
func (b *Board) tell(ctx context.Context, about []notice) {
	var to []Recipient
	for _, n := range about {
		for _, r := range n.to {
			if !slices.ContainsFunc(to, func(o Recipient) bool { return same(o, r) }) {
				to = append(to, r)
			}
		}
	}
	failed := make([]error, len(to))
	var wg sync.WaitGroup
	for i, r := range to {
		wg.Go(func() {
			title, text := b.words(about, r)
			failed[i] = b.opts.Tell(ctx, r.To, title, text)
		})
	}
	wg.Wait()
	var left []Recipient
	for i, err := range failed {
		if err != nil {
			b.log.Error("notice not delivered", zap.String("to", to[i].To.To), zap.Int("troubles", len(about)), zap.Error(err))
			left = append(left, to[i])
		}
	}
	b.told(about, left)
}

func same(a, b Recipient) bool {
	return a.To.To == b.To.To && a.To.URL == b.To.URL && slices.Equal(a.To.Command, b.To.Command)
}

// told marks what was told. A notice that did not reach everybody is tried again
// for the others, later each time, a bounded number of times.
func (b *Board) told(about []notice, left []Recipient) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range about {
		e := b.troubles[n.trouble.Key]
		if e == nil || !e.OpenedAt.Equal(n.trouble.OpenedAt) {
			continue // another of the same key by now
		}
		var missed []Recipient
		for _, r := range n.to {
			if slices.ContainsFunc(left, func(o Recipient) bool { return same(o, r) }) {
				missed = append(missed, r)
			}
		}
		over := !e.ClearedAt.IsZero()
		if len(missed) > 0 && e.tries+1 < maxTries && over == n.over {
			e.tries++
			e.left, e.next = missed, now.Add(min(b.opts.Pace<<(e.tries-1), time.Hour))
			continue
		}
		if n.over {
			e.EndToldAt = now
		} else {
			e.ToldAt = now
		}
		e.dirty, e.tries, e.left, e.next = true, 0, nil, time.Time{}
	}
}

// words are the title and text for one recipient, who hears only of the events
// that it wants.
func (b *Board) words(about []notice, r Recipient) (title, text string) {
	var mine []notice
	for _, n := range about {
		if slices.ContainsFunc(n.to, func(o Recipient) bool { return same(o, r) }) {
			mine = append(mine, n)
		}
	}
	prefix := "runnerd"
	if b.opts.Host != "" {
		prefix += " on " + b.opts.Host
	}
	if len(mine) == 1 {
		return prefix + ": " + mine[0].title(), mine[0].text()
	}
	var lines strings.Builder
	for i, n := range mine {
		if i == maxLines {
			fmt.Fprintf(&lines, "… and %d more; `runnerd status` shows what is open.\n", len(mine)-i)
			break
		}
		fmt.Fprintf(&lines, "%s\n%s\n\n", n.title(), n.text())
	}
	return fmt.Sprintf("%s: %d notices", prefix, len(mine)), lines.String()
}

func (n notice) title() string {
	if n.over {
		return "over: " + n.trouble.Title
	}
	return n.trouble.Title
}

func (n notice) text() string {
	if n.over {
		return n.trouble.Ending
	}
	return n.trouble.Text
}
