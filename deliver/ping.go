package deliver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"runnerd/task"
)

// PingerOptions are a Pinger's settings; the zero value works.
type PingerOptions struct {
	// Resolve replaces ${credential:NAME} and ${env:NAME} in URLs.
	Resolve func(text string) (string, error)
	Redact  func(text string) string
	Logger  *zap.Logger
	// Timeout is for one attempt; 10 s. Attempts is how often one ping is tried;
	// 3. Backoff is the pause between attempts; 5 s.
	Timeout  time.Duration
	Attempts int
	Backoff  time.Duration
}

// Pinger calls the `ping:` URLs of tasks, for a dead man's switch: a service that
// raises the alarm when no ping comes. It never holds up whoever asks; a ping
// that cannot be sent is logged and forgotten, since its absence is the alarm.
//
// A run that ended ok is a GET of the URL. A run that did not is silence, unless
// the URL is one of healthchecks.io's kind, hosted anywhere (its last part is a
// UUID, or its host is hc-ping.com): then URL/fail is called. A cancelled run
// says nothing either way.
type Pinger struct {
	opts   PingerOptions
	queue  chan ping
	client *http.Client
}

type ping struct {
	task, url string
	failed    bool
}

// Bounds of pings.
const (
	maxPings     = 256 // waiting
	pingWorkers  = 4
	maxRedirects = 3
	pingBody     = 64 << 10 // read of an answer, so that its connection can be used again
)

// NewPinger returns a Pinger; it does no I/O. Environment proxies are ignored.
func NewPinger(o PingerOptions) *Pinger {
	if o.Resolve == nil {
		o.Resolve = refuseReferences
	}
	if o.Redact == nil {
		o.Redact = func(s string) string { return s }
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	o.Timeout = orElse(o.Timeout, 10*time.Second)
	o.Attempts = orElse(o.Attempts, 3)
	o.Backoff = orElse(o.Backoff, 5*time.Second)
	return &Pinger{
		opts: o, queue: make(chan ping, maxPings),
		client: &http.Client{
			CheckRedirect: sameHost, Timeout: o.Timeout,
			Transport: &http.Transport{TLSHandshakeTimeout: o.Timeout, MaxIdleConns: pingWorkers, IdleConnTimeout: time.Minute},
		},
	}
}

// sameHost refuses redirects that lead elsewhere: the URL is a secret of its host.
func sameHost(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if req.URL.Host != first.Host || req.URL.Scheme != first.Scheme {
		return fmt.Errorf("redirect to another host, %s, refused", req.URL.Host)
	}
	return nil
}

// Ended says how a run of a task with a ping URL ended, its delivery included. It
// does not block.
func (p *Pinger) Ended(t task.Task, run task.Run) {
	one, ok := pingOf(t, run)
	if !ok {
		return
	}
	select {
	case p.queue <- one:
	default:
		p.opts.Logger.Warn("ping dropped: too many wait", zap.String(keyTask, run.Task))
	}
}

// Alive says that the daemon itself is well. It does not block.
func (p *Pinger) Alive(target string) {
	select {
	case p.queue <- ping{task: "*", url: target}:
	default:
		p.opts.Logger.Warn("ping of the daemon dropped: too many wait")
	}
}

// Now is Ended for a caller that waits, in a process where Run does not run.
func (p *Pinger) Now(ctx context.Context, t task.Task, run task.Run) {
	if one, ok := pingOf(t, run); ok {
		p.send(ctx, one)
		p.client.CloseIdleConnections()
	}
}

// pingOf is what the end of a run says; ok is false if it says nothing.
func pingOf(t task.Task, run task.Run) (one ping, ok bool) {
	one = ping{task: run.Task, url: t.Ping}
	switch run.Status() {
	case task.StatusOK:
	case task.StatusFailed, task.StatusDenied, task.StatusBudget, task.StatusUnknown:
		one.failed = true
	default:
		return one, false
	}
	return one, t.Ping != ""
}

// Run sends pings until ctx ends; what waits then is dropped.
func (p *Pinger) Run(ctx context.Context) error {
	defer p.client.CloseIdleConnections()
	var workers sync.WaitGroup
	for range pingWorkers {
		workers.Go(func() {
			for {
				select {
				case one := <-p.queue:
					p.send(ctx, one)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	workers.Wait()
	return nil
}

func (p *Pinger) send(ctx context.Context, one ping) {
	log := p.opts.Logger.With(zap.String(keyTask, one.task), zap.Bool("failed_run", one.failed))
	target, err := p.target(one)
	if err != nil || target == "" {
		if err != nil {
			log.Warn("ping not sent", zap.Error(err))
		}
		return
	}
	for n := 1; ; n++ {
		if err = p.get(ctx, target); err == nil {
			log.Debug("ping sent")
			return
		}
		if n == p.opts.Attempts || !sleep(ctx, p.opts.Backoff) {
			log.Warn("ping not sent", zap.Int(keyAttempts, n), zap.Error(err))
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// target is the URL to call; empty if the service has none for a failed run.
func (p *Pinger) target(one ping) (string, error) {
	raw, err := p.opts.Resolve(one.url)
	if err != nil {
		return "", fmt.Errorf("ping: %w", err)
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("ping: not an http or https URL")
	}
	if !one.failed {
		return raw, nil
	}
	last := u.Path[strings.LastIndexByte(u.Path, '/')+1:]
	if u.Hostname() != "hc-ping.com" && !uuid.MatchString(last) {
		return "", nil
	}
	return u.JoinPath("fail").String(), nil
}

// get makes one request. Its errors do not show the URL's path, which is a secret.
func (p *Pinger) get(ctx context.Context, target string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return errors.New("ping: request cannot be made")
	}
	req.Header.Set("User-Agent", "runnerd")
	res, err := p.client.Do(req)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err
		}
		return errors.New(p.opts.Redact(fmt.Sprintf("ping %s: %v", req.URL.Host, err)))
	}
	_, _ = io.CopyN(io.Discard, res.Body, pingBody) // only the status counts
	_ = res.Body.Close()
	if res.StatusCode >= 300 {
		return fmt.Errorf("ping %s: %s", req.URL.Host, res.Status)
	}
	return nil
}
