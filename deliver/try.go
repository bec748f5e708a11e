package deliver

import (
	"context"
	"errors"
	"fmt"
)

// Try makes one attempt for one destination of a result, by its place in the
// task's deliver list. again tells whether another attempt may help; it is false
// where an attempt would only repeat the error, and where it must not be made
// because what the first did is not known.
func (d *Deliverer) Try(ctx context.Context, res Result, index int) (again bool, err error) {
	res.Run = res.Run.BeforeDelivery()
	to := res.Task.Deliver[index]
	send, err := d.sender(to, d.message(res))
	if err == nil {
		err = attempt(ctx, orElse(to.Timeout, d.opts.Timeout), send)
	}
	if err == nil {
		return false, nil
	}
	var f final // a reference that cannot be resolved today may be there tomorrow
	again = !errors.As(err, &f)
	return again, errors.New(d.opts.Redact(fmt.Sprintf("deliver to %s: %v", to.To, err)))
}

// Applies tells whether a destination's `when` selects the result.
func (d *Deliverer) Applies(res Result, index int) (bool, error) {
	res.Run = res.Run.BeforeDelivery()
	return res.applies(res.Task.Deliver[index].When)
}
