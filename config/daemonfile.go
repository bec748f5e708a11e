package config

import (
	"fmt"
	"time"

	"runnerd/policy"
	"runnerd/task"
)

type daemonFile struct {
	Notify    *[]notifyKeys  `json:"notify,omitempty" jsonschema:"whom to tell of failures, waiting approvals, budgets, breakers and broken files, once each and once on recovery"`
	Defaults  *taskKeys      `json:"defaults,omitempty" jsonschema:"what a task has where its own file is silent; connectors here yield to a project's"`
	Limits    *dayLimitKeys  `json:"limits,omitempty" jsonschema:"what all tasks together may spend in a day"`
	Deny      *[]grantLine   `json:"deny,omitempty" example:"[\"*/delete_*\"]" jsonschema:"calls that no task may make, whatever its file, project or an override says: connector/tool, or {tool, where}"`
	Retention *retentionKeys `json:"retention,omitempty" jsonschema:"how much history is kept"`
	Ping      *pingKeys      `json:"ping,omitempty" jsonschema:"a dead man's switch: a URL that is called while the daemon is well, so that a service elsewhere notices when it is not"`
	Access    *accessKeys    `json:"access,omitempty" jsonschema:"who else may use the control socket: users, @groups or uids; root and the daemon's own user may read and run"`
}

type pingKeys struct {
	URL   string    `json:"url" title:"URL" example:"${credential:ping_url}" jsonschema:"called with GET while the scheduler turns and the databases answer"`
	Every *duration `json:"every,omitempty" default:"1m" jsonschema:"how often"`
}

type accessKeys struct {
	Read    *[]string `json:"read,omitempty" jsonschema:"who may look"`
	Run     *[]string `json:"run,omitempty" jsonschema:"who may also start, cancel, pause and reload"`
	Approve *[]string `json:"approve,omitempty" jsonschema:"who may also approve calls, edit policy and accept changed tools"`
}

type notifyKeys struct {
	To      string    `json:"to,omitempty" enum:"notify,command" default:"notify" jsonschema:"what kind of destination this is"`
	URL     string    `json:"url,omitempty" title:"URL" example:"${credential:ntfy_url}" jsonschema:"of a notification: a shoutrrr URL"`
	Command *[]string `json:"command,omitempty" empty:"ok" jsonschema:"of a command: program and arguments; the message is its standard input"`
	Events  *[]string `json:"events,omitempty" enum:"failure,approval,budget,breaker,config" jsonschema:"what is told; absent: everything"`
}

type dayLimitKeys struct {
	CostPerDay   *float64 `json:"cost_per_day,omitempty" min:"0" jsonschema:"money in a day"`
	TokensPerDay *int64   `json:"tokens_per_day,omitempty" min:"1" jsonschema:"tokens in a day"`
	RunsPerDay   *int     `json:"runs_per_day,omitempty" min:"1" jsonschema:"runs in a day"`
}

type retentionKeys struct {
	Age     *duration `json:"age,omitempty" default:"90d" jsonschema:"runs older than this are removed"`
	Runs    *int      `json:"runs,omitempty" min:"1" default:"1000" jsonschema:"runs kept of each task, the newest"`
	Results *size     `json:"results,omitempty" default:"1GiB" jsonschema:"disk quota for whole tool results, oldest removed first"`
}

// Daemon is runnerd.yaml without its defaults, which are merged into the tasks.
type Daemon struct {
	Notify []Notify
	Limits policy.Limits // per day, all tasks together
	// Deny is a ceiling: nothing that a task, a project or an override says lifts it.
	Deny      task.List[policy.Grant]
	Retention Retention
	Access    Access
	Ping      Ping
}

// Policy is what a decision reads of runnerd.yaml.
func (d Daemon) Policy() policy.Fields {
	return policy.Fields{Limits: &d.Limits, Deny: d.Deny}
}

// Ping is the daemon's own dead man's switch; none without a URL, which may hold
// references.
type Ping struct {
	URL   string
	Every time.Duration
}

// Access is who may use the control socket beside root and the daemon's own
// user: a user's name, @group, or a uid.
type Access struct{ Read, Run, Approve []string }

// Notify is one entry of `notify:`.
type Notify struct {
	// To holds ${...} references, unresolved.
	To task.Delivery
	// Events are the Event* values that are told; nil means all.
	Events []string
}

// The events that `notify:` can name.
const (
	EventFailure  = "failure"
	EventApproval = "approval"
	EventBudget   = "budget"
	EventBreaker  = "breaker"
	EventConfig   = "config"
)

// Retention bounds the history.
type Retention struct {
	Age time.Duration
	// Runs is per task.
	Runs int
	// Results is the quota for whole tool results, in bytes.
	Results int64
}

const (
	defaultRetentionAge     = 90 * 24 * time.Hour
	defaultRetentionRuns    = 1000
	defaultRetentionResults = 1 << 30
)

func (p *parsed) checkDaemon() {
	f := p.daemon
	if f.Defaults != nil {
		p.checkTaskKeys(f.Defaults, "defaults")
	}
	p.checkGrants([]string{"deny"}, "deny", f.Deny)
	if f.Retention != nil && f.Retention.Age != nil && *f.Retention.Age <= 0 {
		p.complain([]string{"retention", "age"}, "0 is too short", expectedDuration, "")
	}
	if f.Ping != nil {
		at := []string{"ping", "url"}
		p.reference(at, f.Ping.URL, forSecret)
		p.checkURL(at, f.Ping.URL)
		if f.Ping.Every != nil && *f.Ping.Every < duration(10*time.Second) {
			p.complain([]string{"ping", "every"}, "more often than every 10 s", expectedDuration, "")
		}
	}
	if f.Notify == nil {
		return
	}
	for i, n := range *f.Notify {
		to := n.To
		if to == "" {
			to = "notify"
		}
		p.checkDelivery(&deliveryKeys{To: to, URL: n.URL, Command: n.Command}, []string{"notify", fmt.Sprint(i)})
	}
}

func (f *daemonFile) daemon() Daemon {
	d := Daemon{Retention: Retention{defaultRetentionAge, defaultRetentionRuns, defaultRetentionResults}}
	if f == nil {
		return d
	}
	if f.Limits != nil {
		d.Limits = limitKeys{CostPerDay: f.Limits.CostPerDay, TokensPerDay: f.Limits.TokensPerDay, RunsPerDay: f.Limits.RunsPerDay}.limits()
	}
	d.Deny = grants(f.Deny)
	if r := f.Retention; r != nil {
		d.Retention.Age = orElse(r.Age, d.Retention.Age)
		if r.Runs != nil {
			d.Retention.Runs = *r.Runs
		}
		if r.Results != nil {
			d.Retention.Results = int64(*r.Results)
		}
	}
	if f.Ping != nil {
		d.Ping = Ping{URL: f.Ping.URL, Every: orElse(f.Ping.Every, time.Minute)}
	}
	if a := f.Access; a != nil {
		d.Access = Access{Read: values(a.Read), Run: values(a.Run), Approve: values(a.Approve)}
	}
	if f.Notify != nil {
		for _, n := range *f.Notify {
			to := task.Delivery{To: n.To, URL: n.URL, Command: values(n.Command)}
			if to.To == "" {
				to.To = "notify"
			}
			d.Notify = append(d.Notify, Notify{To: to, Events: values(n.Events)})
		}
	}
	return d
}

// limits converts the file's units into policy's.
func (k limitKeys) limits() policy.Limits {
	l := policy.Limits{Steps: k.Steps, ToolCalls: k.ToolCalls, Tokens: k.Tokens, TokensPerDay: k.TokensPerDay, RunsPerDay: k.RunsPerDay}
	money := func(v *float64) *task.Money {
		if v == nil {
			return nil
		}
		m := task.MoneyOf(*v)
		return &m
	}
	l.Cost, l.CostPerDay = money(k.Cost), money(k.CostPerDay)
	if k.Wall != nil {
		w := time.Duration(*k.Wall)
		l.Wall = &w
	}
	return l
}
