package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"runnerd/policy"
	"runnerd/task"
)

// assembly makes one Set of the files that were read. The order matters: models
// and connectors, then what names them, tasks last.
type assembly struct {
	l   *Loader
	set *Set
	// disabled are connectors that are switched off, with their file; leftOut those
	// of other hosts' files that are not used, with the reason.
	disabled, leftOut map[string]string
	// broken are kinds with a file that is not good as it stands; lost those
	// where no last good revision stands in, so that names cannot be judged.
	broken, lost map[kind]bool
	defaults     taskKeys
	projects     map[string]projectKeys
	checks       map[string]error
	files        map[kind][]string // by kind, in order
	shared       shared
	// inForce are the revisions of all files but tasks, as they were chosen;
	// sameGround says that the tasks are judged against what they were last time.
	inForce    []*parsed
	sameGround bool
}

func (l *Loader) assemble(found *scan) *Set {
	a := &assembly{
		l: l, disabled: make(map[string]string), leftOut: make(map[string]string), broken: make(map[kind]bool), lost: make(map[kind]bool),
		projects: make(map[string]projectKeys), checks: make(map[string]error), files: make(map[kind][]string),
		defaults: builtinDefaults(),
		set: &Set{
			Tasks: make(map[string]TaskFile), Models: make(map[string]task.ModelSpec),
			Connectors: make(map[string]ConnectorFile), Projects: make(map[string]ProjectFile),
			Accepted: make(map[string]Revision, len(found.files)), Warnings: found.warnings,
		},
	}
	for _, f := range found.files {
		a.files[f.kind] = append(a.files[f.kind], f.rel)
	}
	a.models()
	a.connectors()
	a.projectFiles()
	a.daemon()
	a.tasks()
	l.checks = a.checks
	a.set.Problems = sortProblems(a.set.Problems)
	a.set.Warnings = sortProblems(a.set.Warnings)
	slices.Sort(a.set.Kept)
	return a.set
}

// builtinDefaults are those of DESIGN, section 5.
func builtinDefaults() taskKeys {
	dur := func(d time.Duration) *duration { v := duration(d); return &v }
	num := func(n int) *int { return &n }
	enabled, tokens := true, int64(500_000)
	return taskKeys{
		Enabled: &enabled, Model: "default", OnAsk: string(policy.OnAskDeny), ApprovalTTL: dur(24 * time.Hour),
		Session: string(task.SessionKeep), CatchUp: string(task.CatchUpOnce), CatchUpWindow: dur(24 * time.Hour),
		Overlap: string(task.OverlapSkip), Jitter: dur(0),
		Retry:  &retryKeys{Attempts: num(2), Backoff: dur(time.Minute)},
		Limits: &limitKeys{Steps: num(25), ToolCalls: num(50), Tokens: &tokens, Wall: dur(15 * time.Minute)},
	}
}

// pick decides between what is on disk and the last good revision. check is the
// cross-file part; what it finds about a file that stood before is reported, but
// does not take the old revision out of force.
func (a *assembly) pick(rel string, check func(*parsed) []Problem) (p *parsed, stale bool) {
	c := a.l.cache[rel]
	var problems []Problem
	if c.access != nil {
		problems = append(problems, *c.access)
	}
	if c.parsed != nil {
		a.set.Warnings = append(a.set.Warnings, c.parsed.warnings...)
		problems = append(problems, c.parsed.problems...)
		if c.parsed.readable() {
			problems = append(problems, check(c.parsed)...)
		}
	}
	if len(problems) == 0 {
		a.accept(c.parsed)
		return c.parsed, false
	}
	a.set.Problems = append(a.set.Problems, problems...)
	return a.lastGood(rel), true
}

func (a *assembly) accept(p *parsed) {
	a.l.accepted[p.rel] = p
	a.set.Accepted[p.rel] = Revision{Content: p.content, SHA256: p.sum}
	a.use(p)
}

func (a *assembly) use(p *parsed) {
	if p.kind != kindTask {
		a.inForce = append(a.inForce, p)
	}
	for _, ref := range p.refs {
		a.set.refs = append(a.set.refs, fileReference{p.rel, ref})
	}
}

// lastGood returns the last accepted revision of a file, from memory or from the
// store, nil if there is none.
func (a *assembly) lastGood(rel string) *parsed {
	p := a.l.accepted[rel]
	if p == nil && a.l.opts.LastGood != nil {
		if content, ok := a.l.opts.LastGood(rel); ok {
			if old := parse(rel, kindOf(rel), content); old.good() {
				p = old
				a.l.accepted[rel] = p
			}
		}
	}
	if p == nil {
		a.lost[kindOf(rel)] = true
		a.broken[kindOf(rel)] = true
		return nil
	}
	a.broken[kindOf(rel)] = true
	a.set.Kept = append(a.set.Kept, rel)
	a.use(p)
	return p
}

func kindOf(rel string) kind {
	switch {
	case strings.HasPrefix(rel, tasksDir+"/"):
		return kindTask
	case rel == daemonName:
		return kindDaemon
	case rel == modelsName:
		return kindModels
	case rel == projectsName:
		return kindProjects
	}
	return kindConnectors
}

// readable tells whether anything could be decoded.
func (p *parsed) readable() bool {
	return p.task != nil || p.spare || p.models != nil || p.connectors != nil || p.projects != nil || p.daemon != nil
}

func (a *assembly) models() {
	for _, rel := range a.files[kindModels] {
		p, _ := a.pick(rel, func(*parsed) []Problem { return nil })
		if p == nil {
			continue
		}
		for name, m := range p.models.Models {
			a.set.Models[name] = m.spec(name, a.l.opts.Dir)
		}
	}
}

// connectors reads connectors.yaml first, then connectors.d in order, then the
// file of another host; a name that is taken is an error in the later file.
func (a *assembly) connectors() {
	order := a.files[kindConnectors]
	slices.SortStableFunc(order, func(x, y string) int { return connectorRank(x) - connectorRank(y) })
	for _, rel := range order {
		p, stale := a.pick(rel, a.checkConnectorNames)
		if p == nil {
			continue
		}
		for id, why := range p.leftOut {
			a.leftOut[id] = why
		}
		for _, id := range slices.Sorted(maps.Keys(p.connectors.names)) {
			keys := p.connectors.Servers[p.connectors.names[id]]
			if _, taken := a.set.Connectors[id]; taken {
				if isHostFile(rel) {
					a.set.Warnings = append(a.set.Warnings, a.taken(p, id))
				}
				continue
			}
			if keys.Disabled {
				a.disabled[id] = rel
				continue
			}
			a.set.Connectors[id] = ConnectorFile{Connector: keys.connector(id, rel), Policy: keys.policy(), File: rel, Stale: stale}
		}
	}
}

func connectorRank(rel string) int {
	switch rel {
	case connectorsName:
		return 0
	case hostFileName:
		return 2
	}
	return 1
}

func (a *assembly) checkConnectorNames(p *parsed) (out []Problem) {
	if isHostFile(p.rel) {
		return nil // each entry is judged alone
	}
	for id := range p.connectors.names {
		if _, taken := a.set.Connectors[id]; taken {
			out = append(out, a.taken(p, id))
		}
	}
	return out
}

// taken says that an earlier file has a connector of the same name.
func (a *assembly) taken(p *parsed, id string) Problem {
	name := p.connectors.names[id]
	pr := p.problemAt([]string{"mcpServers", name}, fmt.Sprintf("connector %s is already defined in %s", quoted(id), a.set.Connectors[id].File), "a name of its own", "")
	if at := p.places(); at != nil {
		key := at.keyAt("mcpServers", name)
		pr.Line, pr.Col = int(key.line), int(key.col)
	}
	return pr
}

func (a *assembly) projectFiles() {
	for _, rel := range a.files[kindProjects] {
		p, stale := a.pick(rel, func(p *parsed) (out []Problem) {
			for id, k := range p.projects.Projects {
				out = append(out, a.unknownConnectors(p, k.Connectors, "projects", id, "connectors")...)
			}
			return out
		})
		if p == nil {
			continue
		}
		for id, k := range p.projects.Projects {
			a.projects[id] = k
			a.set.Projects[id] = ProjectFile{Project: task.Project{ID: id, Instructions: k.Instructions}, Policy: k.policy(), Stale: stale}
		}
	}
}

func (a *assembly) daemon() {
	a.set.Daemon = (*daemonFile)(nil).daemon()
	for _, rel := range a.files[kindDaemon] {
		p, _ := a.pick(rel, func(p *parsed) []Problem {
			out := a.checkGrantNames(p, p.daemon.Deny, []string{"deny"})
			if p.daemon.Defaults != nil {
				out = append(out, a.checkNames(p, *p.daemon.Defaults, *p.daemon.Defaults, "defaults")...)
			}
			return out
		})
		if p == nil { // what it would deny is not known
			a.set.Daemon.Deny = task.ListOf(policy.Grant{Connector: "*", Tool: "*"})
			continue
		}
		a.set.Daemon = p.daemon.daemon()
		if p.daemon.Defaults != nil {
			a.defaults = p.daemon.Defaults.over(a.defaults)
		}
		a.warnUnpriced(p)
	}
}

// warnUnpriced says that money cannot be counted on a model without a price.
func (a *assembly) warnUnpriced(p *parsed) {
	if a.set.Daemon.Limits.CostPerDay == nil {
		return
	}
	var names []string
	for _, name := range a.set.ModelNames() {
		if a.set.Models[name].Price == nil {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		a.set.Warnings = append(a.set.Warnings, p.problemAt([]string{"limits", "cost_per_day"},
			"models without a price do not count against it: "+strings.Join(names, ", "), "", "state their price in models.yaml; {input: 0, output: 0} if they are free"))
	}
}

// unknownConnectors complains of names in a list that no connector has.
func (a *assembly) unknownConnectors(p *parsed, ids *[]string, at ...string) (out []Problem) {
	for _, id := range values(ids) {
		if a.missing(id) {
			out = append(out, *a.unknownConnector(p, id, indexOf(p, at, id)))
		}
	}
	return out
}

// indexOf is the path of the entry id of the list of connectors at the path.
func indexOf(p *parsed, at []string, id string) []string {
	if i, ok := p.entries[pointerOf(at)][id]; ok {
		return below(at, fmt.Sprint(i))
	}
	return at
}

// missing tells whether no connector has the name, as far as that is known.
func (a *assembly) missing(id string) bool {
	_, ok := a.set.Connectors[id]
	return !ok && !a.lost[kindConnectors] && task.ValidConnectorID(id)
}

func (a *assembly) unknownConnector(p *parsed, id string, at []string) *Problem {
	if !a.missing(id) {
		return nil
	}
	hint := didYouMean(id, a.set.ConnectorIDs())
	if rel, ok := a.disabled[id]; ok {
		hint = "it is disabled in " + rel
	} else if why, ok := a.leftOut[id]; ok {
		hint = why
	} else if hint == "" && a.broken[kindConnectors] {
		hint = "a connectors file is broken; its last good revision is in force"
	}
	pr := p.problemAt(at, "unknown connector "+quoted(id), "a connector of connectors.yaml", hint)
	return &pr
}

// checkNames checks every name in the keys of a task, or of `defaults:`, that
// another file defines. own are the file's keys, full those with defaults.
func (a *assembly) checkNames(p *parsed, own, full taskKeys, prefix ...string) (out []Problem) {
	at := func(path ...string) []string { return below(prefix, path...) }
	if _, ok := a.set.Models[own.Model]; own.Model != "" && !ok && !a.lost[kindModels] {
		out = append(out, p.problemAt(at("model"), "unknown model "+quoted(own.Model), "a model of models.yaml", a.hint(kindModels, own.Model, a.set.ModelNames())))
	}
	if _, ok := a.set.Projects[own.Project]; own.Project != "" && !ok && !a.lost[kindProjects] {
		out = append(out, p.problemAt(at("project"), "unknown project "+quoted(own.Project), "a project of projects.yaml", a.hint(kindProjects, own.Project, a.set.ProjectIDs())))
	}
	out = append(out, a.unknownConnectors(p, own.Connectors, at("connectors")...)...)
	out = append(out, a.unknownConnectors(p, own.Require, at("require")...)...)
	out = append(out, a.unknownConnectors(p, own.Optional, at("optional")...)...)
	out = append(out, a.unknownConnectors(p, own.Tools, at("tools")...)...)
	out = append(out, a.checkGrantNames(p, own.Allow, at("allow"))...)
	out = append(out, a.checkGrantNames(p, own.Deny, at("deny"))...)
	if own.Schedule != nil {
		out = append(out, a.checkSchedule(p, full, at("schedule"))...)
	}
	for i, d := range deliveries(own.Deliver) {
		if err := a.asked("path "+d.Path, func() error { return a.l.opts.CheckPath(d) }); d.Path != "" && err != nil {
			out = append(out, p.problemAt(below(at("deliver"), fmt.Sprint(i), "path"), oneLine(err.Error()), "", ""))
		}
	}
	return out
}

func (a *assembly) hint(k kind, name string, names []string) string {
	if h := didYouMean(name, names); h != "" {
		return h
	}
	if a.broken[k] {
		return string(k) + ".yaml is broken; its last good revision is in force"
	}
	return ""
}

func (a *assembly) checkGrantNames(p *parsed, lines *[]grantLine, at []string) (out []Problem) {
	if lines == nil {
		return nil
	}
	for i, line := range *lines {
		conn := line.Connector
		if !task.ValidConnectorID(conn) {
			continue // a pattern, or refused by itself
		}
		if a.missing(conn) {
			here := below(at, fmt.Sprint(i))
			if inner := below(here, "tool"); p.has(inner...) {
				here = inner
			}
			out = append(out, *a.unknownConnector(p, conn, here))
			continue
		}
		if a.set.Connectors[conn].Connector.URL == "" {
			continue
		}
		for name, c := range line.Where {
			if c.Under != "" {
				out = append(out, p.problemAt(below(at, fmt.Sprint(i), "where", name, "under"),
					fmt.Sprintf("connector %s runs elsewhere, so its paths cannot be checked", conn), "under only with a connector that runs here", ""))
			}
		}
	}
	return out
}

// checkSchedule asks about each line by itself, so that the complaint has its
// place, then about the whole.
func (a *assembly) checkSchedule(p *parsed, k taskKeys, at []string) (out []Problem) {
	specs := *k.Schedule
	zone := k.Timezone
	if zone == "" {
		zone = a.l.opts.Zone
	}
	if _, err := task.LoadZone(zone); err != nil {
		return nil
	}
	for i, spec := range specs {
		if err := a.scheduleError(task.Schedule{Specs: []string{spec}, Zone: zone, DayMatch: k.DayMatch}); err != nil {
			here := at
			if item := below(at, fmt.Sprint(i)); p.has(item...) {
				here = item
			}
			out = append(out, p.problemAt(here, oneLine(err.Error()), "", ""))
		}
	}
	if len(out) == 0 && len(specs) > 1 {
		if err := a.scheduleError(task.Schedule{Specs: specs, Zone: zone, DayMatch: k.DayMatch}); err != nil {
			out = append(out, p.problemAt(at, oneLine(err.Error()), "", ""))
		}
	}
	return out
}

func (a *assembly) scheduleError(s task.Schedule) error {
	key := strings.Join(append([]string{s.Zone, s.DayMatch}, s.Specs...), "\x00")
	return a.asked(key, func() error { return a.l.opts.CheckSchedule(s) })
}

// asked remembers answers over loads, as one can take a search of years.
func (a *assembly) asked(key string, check func() error) error {
	if err, ok := a.checks[key]; ok {
		return err
	}
	err, ok := a.l.checks[key]
	if !ok {
		err = check()
	}
	a.checks[key] = err
	return err
}
