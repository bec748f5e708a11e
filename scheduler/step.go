package scheduler

import (
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"runnerd/task"
)

// Step is a stretch of time, From excluded, that the clock was set forward over while
// the scheduler watched: nothing could run in it.
type Step struct{ From, To time.Time }

// maxSteps is how many steps are kept. Only instants that could not be recorded yet
// need an older one than the newest.
const maxSteps = 16

// watchClock looks for a clock that was set. One that went back puts every cursor and
// every hold in doubt; one that went forward explains what nobody saw come due.
func (s *Scheduler) watchClock(now time.Time) {
	s.mu.Lock()
	lived := s.lived()
	from, by := s.last, now.Sub(s.last)
	forward := by - (lived - s.lasted)
	s.last, s.lasted = now, lived
	switch {
	case by < -clockSlack:
		s.steps = nil
		for _, e := range s.entries {
			e.failures = 0
			s.place(e, now)
		}
	case forward > clockSlack:
		s.steps = append(s.steps, Step{From: from, To: now})
		s.steps = s.steps[max(0, len(s.steps)-maxSteps):]
	}
	s.mu.Unlock()
	switch {
	case by < -clockSlack:
		s.log.Warn("the clock went back", zap.Duration(keyBack, -by))
		if s.opts.Stepped != nil {
			s.opts.Stepped(now, -by)
		}
	case forward > clockSlack:
		s.log.Warn("the clock was set forward", zap.Duration(keyForward, forward))
	}
}

// stepsNow are the steps that are kept.
func (s *Scheduler) stepsNow() []Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.steps)
}

// slept is for how long this machine has slept since it started: the clock that counts
// on in its sleep is ahead by that of the one that does not.
func slept() time.Duration {
	var with, without unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &with) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &without) != nil {
		return 0
	}
	return time.Duration(with.Nano() - without.Nano())
}

// steppedOver tells whether an instant lies in a stretch that the clock was set over.
func (f *Firing) steppedOver(due time.Time) bool {
	return slices.ContainsFunc(f.Steps, func(s Step) bool { return due.After(s.From) && !due.After(s.To) })
}

// unseen is why nobody saw an instant come due; other is what explains it else.
func (f *Firing) unseen(due time.Time, other string) string {
	if f.steppedOver(due) {
		return task.ReasonStepped
	}
	return other
}

// noticed adds to a reason not to catch up an instant why that came up at all.
func (f *Firing) noticed(due time.Time, reason string) string {
	if f.steppedOver(due) {
		return because(reason, setForward)
	}
	return reason
}

const setForward = "the clock was set forward"
