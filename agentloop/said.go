package agentloop

import (
	"slices"
	"sync"

	"go.uber.org/zap"
)

// said remembers what the log was told of tasks, so that it is told once and not in
// every run. Safe for concurrent use.
type said struct {
	mu sync.Mutex
	by map[topic][]string
}

// topic is what a list of details is about.
type topic struct{ task, what string }

// news are the details that were not among those told last.
func (s *said) news(t topic, details []string) (news []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range details {
		if !slices.Contains(s.by[t], d) && !slices.Contains(news, d) {
			news = append(news, d)
		}
	}
	switch {
	case len(details) == 0:
		delete(s.by, t)
	case s.by == nil:
		s.by = map[topic][]string{t: details}
	default:
		s.by[t] = details
	}
	return news
}

// warn logs those details of the task that are new: all that there are now are given,
// so that one which is gone is told of again when it comes back.
func (a *attempt) warn(what string, details []string) {
	for _, d := range a.said.news(topic{a.run.Task, what}, details) {
		a.log.Warn(what, zap.String("detail", d))
	}
}
