package systemd

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"go.uber.org/zap"
)

// keyInterval is a log key.
const keyInterval = "interval"

// WatchdogInterval is how often, at the least, the manager wants to hear from
// this process; 0 if it does not.
func WatchdogInterval(getenv func(string) string) (time.Duration, error) {
	usec, pid := getenv("WATCHDOG_USEC"), getenv("WATCHDOG_PID")
	if usec == "" {
		return 0, nil
	}
	if pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0, nil // it was meant for our parent
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 0 || n > int64(1<<63-1)/int64(time.Microsecond) {
		return 0, fmt.Errorf("read WATCHDOG_USEC: %q, want a number of microseconds above 0", usec)
	}
	return time.Duration(n) * time.Microsecond, nil
}

// Watchdog feeds the manager's watchdog three times an interval, each time only
// if healthy returns nil. It blocks until ctx ends; with an interval of 0 it
// returns at once. healthy gets a third of the interval and must heed its
// context; while it fails or hangs nothing is sent, and the manager ends the
// service when the interval is over.
// What healthy says becomes the status; the former status returns with health.
func (n *Notifier) Watchdog(ctx context.Context, interval time.Duration, healthy func(context.Context) error, log *zap.Logger) {
	if interval <= 0 {
		return
	}
	if log == nil {
		log = zap.NewNop()
	}
	third := max(interval/3, time.Millisecond)
	tick := time.NewTicker(third)
	defer tick.Stop()
	sick := false
	for ctx.Err() == nil {
		sick = n.feed(ctx, third, healthy, sick, log.With(zap.Duration(keyInterval, interval)))
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// feed asks once and tells the manager; it returns whether the service is sick.
func (n *Notifier) feed(ctx context.Context, patience time.Duration, healthy func(context.Context) error, sick bool, log *zap.Logger) bool {
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	illness := healthy(call)
	if ctx.Err() != nil {
		return sick
	}
	var err error
	switch {
	case illness == nil && sick:
		log.Info("healthy again")
		err = n.send("WATCHDOG=1", "STATUS="+n.lastStatus())
	case illness == nil:
		err = n.send("WATCHDOG=1")
	case !sick:
		log.Error("unhealthy, the watchdog is not fed", zap.Error(illness))
		err = n.send("STATUS=unhealthy: " + oneLine(illness.Error()))
	}
	if err != nil {
		log.Warn("feed the watchdog", zap.Error(err))
	}
	return illness != nil
}
