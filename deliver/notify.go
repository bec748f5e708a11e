package deliver

import (
	"context"
	"errors"
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nicholas-fedor/shoutrrr/pkg/router"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"
	"github.com/nicholas-fedor/shoutrrr/pkg/util"

	"runnerd/task"
	"runnerd/text"
)

// service is a notification service, made ready from its URL.
type service struct {
	types.Service
	scheme string
	url    *url.URL
	raw    string
}

// titled are the services that take a title of their own; for others it becomes
// the first line.
var titled = []string{
	"bark", "discord", "generic", "gotify", "ifttt", "join", "lark", "matrix", "mattermost", "ntfy", "opsgenie",
	"pushbullet", "pushover", "slack", "smtp", "teams", "telegram", "zulip",
}

// limits are the bytes that a service takes, title aside; defaultLimit is for
// the rest.
var limits = map[string]int{"smtp": 1 << 20, "generic": 1 << 20, "matrix": 30_000, "zulip": 9_000, "pushover": 1000}

const defaultLimit = 3500

// openService reads a notification URL. Its errors do not repeat the URL, which
// may hold secrets.
func openService(raw string) (s *service, err error) {
	defer func() {
		if p := recover(); p != nil { // the library's own parsers
			s, err = nil, errors.New("url cannot be read by its service")
		}
	}()
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("url cannot be read; it should look like ntfy://host/topic (shoutrrr)")
	}
	s = &service{url: u, raw: raw}
	s.scheme, _, _ = strings.Cut(u.Scheme, "+")
	if s.scheme == "logger" {
		return nil, errors.New("url: the service logger delivers nowhere")
	}
	if s.Service, err = new(router.ServiceRouter).NewService(s.scheme); err != nil {
		return nil, fmt.Errorf("url: no notification service is called %q (the schemes are shoutrrr's)", s.scheme)
	}
	if s.scheme != u.Scheme {
		custom, ok := s.Service.(types.CustomURLService)
		if !ok {
			return nil, fmt.Errorf("url: the service %s takes no custom URL", s.scheme)
		}
		if u, err = custom.GetConfigURLFromCustom(u); err != nil {
			return nil, fmt.Errorf("url of %s: %w", s.scheme, s.scrub(err))
		}
	}
	if err := s.Initialize(u, util.DiscardLogger); err != nil {
		return nil, fmt.Errorf("url of %s: %w", s.scheme, s.scrub(err))
	}
	return s, nil
}

func (d *Deliverer) toNotify(to task.Delivery, m message) (send, error) {
	raw, err := d.opts.Resolve(to.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	s, err := openService(raw)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return d.notify(ctx, s, m) }, nil
}

// notify sends once. The library knows no context: when ctx ends first the send
// is left to itself, keeps its place among maxSends until it returns, and is not
// repeated, since it may still arrive.
func (d *Deliverer) notify(ctx context.Context, s *service, m message) error {
	select {
	case d.sends <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%d notifications are under way and none has ended", maxSends)
	}
	begin := time.Now()
	done := make(chan error, 1)
	go func() {
		defer func() { <-d.sends }()
		done <- s.send(m)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return final{fmt.Errorf("%s did not answer within %s; it is not known whether the message arrived", s.scheme, time.Since(begin).Round(time.Millisecond))}
	}
}

// send calls the library, whose panics are errors here.
func (s *service) send(m message) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = final{fmt.Errorf("%s: internal error: %w", s.scheme, s.scrub(fmt.Errorf("%v", p)))}
		}
	}()
	text, params := m.text, types.Params{}
	switch {
	case s.hasTitle():
	case slices.Contains(titled, s.scheme):
		params.SetTitle(cut(m.title, 60, ""))
	default:
		text = m.title + "\n\n" + text
	}
	limit := defaultLimit
	if n, ok := limits[s.scheme]; ok {
		limit = n
	}
	err = s.Send(cut(text, limit, fmt.Sprintf("\n[cut; %d bytes in all]", len(text))), &params)
	var code *textproto.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &code) && code.Code >= 500:
		return final{fmt.Errorf("%s: %w", s.scheme, s.scrub(err))}
	}
	return fmt.Errorf("%s: %w", s.scheme, s.scrub(err))
}

// hasTitle tells whether the operator chose a title in the URL.
func (s *service) hasTitle() bool {
	for key := range s.url.Query() {
		switch strings.ToLower(key) {
		case "title", "subject", "topic":
			return true
		}
	}
	return false
}

// cut shortens text to at most limit bytes, mark included, at a character.
func cut(text string, limit int, mark string) string {
	if len(text) <= limit {
		return text
	}
	end := max(limit-len(mark), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// scrub takes the URL and its secret parts out of an error: user, password,
// path and query, but not the host, which a person needs.
func (s *service) scrub(err error) error {
	parts := []string{s.raw, s.url.String(), s.url.Redacted(), s.url.User.Username(), s.url.Path, s.url.RawQuery}
	if password, ok := s.url.User.Password(); ok {
		parts = append(parts, password)
	}
	parts = append(parts, strings.Split(s.url.Path, "/")...)
	for _, values := range s.url.Query() {
		parts = append(parts, values...)
	}
	slices.SortFunc(parts, func(a, b string) int { return len(b) - len(a) })
	said := err.Error()
	for _, p := range parts {
		if len(p) < 6 { // too short to be a secret, and likely to be a word
			continue
		}
		for _, form := range []string{p, url.QueryEscape(p), url.PathEscape(p)} {
			said = strings.ReplaceAll(said, form, "…")
		}
	}
	return errors.New(text.Line(said))
}
