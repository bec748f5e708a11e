package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// final wraps an error that another attempt would only repeat, or must not.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// retry makes attempts until one succeeds, one is final, or their number or time
// is used up. It answers how many were made.
func (d *Deliverer) retry(ctx context.Context, timeout time.Duration, send send) (attempts int, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.opts.Deadline)
	defer cancel()
	pause := d.opts.Backoff
	for attempts = 1; ; attempts++ {
		err = attempt(ctx, orElse(timeout, d.opts.Timeout), send)
		var f final
		if err == nil || errors.As(err, &f) || attempts == d.opts.Attempts {
			return attempts, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause *= 2
		case <-ctx.Done():
			timer.Stop()
			return attempts, fmt.Errorf("%w (given up: %w)", err, ctx.Err())
		}
	}
}

func attempt(ctx context.Context, timeout time.Duration, send send) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return final{err}
	}
	return send(ctx)
}
