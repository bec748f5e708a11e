package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// warmUp is how long a daemon runs before it counts as idle: what follows a start
// once, such as the first look at all files and the giving back of memory, is over
// by then.
const warmUp = 75 * time.Second

// idle measures what a daemon takes whose tasks are all far off: CPU over the
// watch, memory at its end. The watch holds at least one of each of the things
// that recur: the scheduler's look at the clock, the look at the files where they
// are few, the collection that the runtime makes every two minutes.
func idle(ctx context.Context, b *bench) error {
	for _, n := range []int{10, 10_000, 100_000} {
		if err := b.idleWith(ctx, n); err != nil {
			return fmt.Errorf("%d tasks: %w", n, err)
		}
	}
	return nil
}

func (b *bench) idleWith(ctx context.Context, n int) (err error) {
	place, err := b.site()
	if err != nil {
		return err
	}
	defer b.remove(place)
	if err := place.tasks(n, farOff(time.Now().Year())); err != nil {
		return err
	}
	d, err := place.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := errors.Join(pause(ctx, warmUp), d.settle(ctx, 5*time.Minute)); err != nil {
		return err
	}
	before, err := d.usage()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := pause(ctx, b.watch); err != nil {
		return err
	}
	after, err := d.usage()
	if err != nil {
		return err
	}
	share := (after.cpu - before.cpu).Seconds() / time.Since(begun).Seconds() * 100
	b.addIdle(n, share, after, d)
	return nil
}

func (b *bench) addIdle(n int, share float64, after usage, d *daemon) {
	cpu, cpuAim, judged := fmt.Sprintf("%.2f%% of a core", share), "", unjudged
	rss, rssAim, fits := fmt.Sprintf("%s (peak %s)", megabytes(after.rss), megabytes(after.peak)), "", unjudged
	switch n {
	case 10:
		rssAim, fits = "< 40 MB", below(after.rss, 40_000_000)
	case 100_000:
		cpuAim, judged = "< 0.5%", below(share, 0.5)
		rssAim, fits = "< 200 MB", below(after.rss, 200_000_000)
	}
	b.add(fmt.Sprintf("idle CPU, %d tasks", n), cpu, cpuAim, judged)
	b.add(fmt.Sprintf("RSS, %d tasks", n), rss, rssAim, fits)
	b.add(fmt.Sprintf("first start, %d tasks", n), fmt.Sprintf("%s (CPU %s)", seconds(d.ready), seconds(d.startCPU)), "", unjudged)
}
