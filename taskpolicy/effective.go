package taskpolicy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"runnerd/policy"
	"runnerd/task"
)

// effectiveQuery answers one text a row: scope, id and layer, then the fields of the
// scope in the order of fieldsOf, for a connector also its pins. Each column that
// crosses the driver costs more than the whole row does as one text. No JSON text
// holds the separator, and none is the mark that stands for NULL.
const (
	separator = "\x1e"
	null      = "-"
)

// effectiveQuery reads the rows of one task, session and project, the daemon's, and
// those of every connector with its pins: all that a decision depends on, in one
// statement and so in one snapshot.
func effectiveQuery(postgres bool) string {
	own := func(scope policy.Scope, id string) string {
		return "SELECT " + rowText(scope) + " FROM policy_rows r WHERE r.scope = '" + string(scope) + "' AND r.id = " + id
	}
	query := strings.Join([]string{
		own(policy.ScopeTask, "?"), own(policy.ScopeSession, "?"), own(policy.ScopeProject, "?"), own(scopeDaemon, "'"+daemonID+"'"),
		"SELECT " + rowText(policy.ScopeConnector, "p.pins") +
			" FROM policy_rows r LEFT JOIN policy_pins p ON p.connector = r.id WHERE r.scope = '" + string(policy.ScopeConnector) + "'",
	}, " UNION ALL ")
	if postgres {
		for i := 1; strings.Contains(query, "?"); i++ {
			query = strings.Replace(query, "?", "$"+strconv.Itoa(i), 1)
		}
	}
	return query
}

// rowText is the SQL expression of a row of the scope as one text.
func rowText(scope policy.Scope, more ...string) string {
	parts := []string{"r.scope", "r.id", "r.layer"}
	for _, name := range fieldsOf[scope] {
		parts = append(parts, "COALESCE(r."+name+", '"+null+"')")
	}
	for _, column := range more {
		parts = append(parts, "COALESCE("+column+", '"+null+"')")
	}
	return strings.Join(parts, " || '"+separator+"' || ")
}

// layered is what both layers say about one scope and id: the texts of their
// fields, "" for a layer without a row.
type layered struct {
	file, override string
}

// texts are the fields of both layers of one scope and id.
type texts struct {
	scope          policy.Scope
	file, override []string
}

// split takes the texts apart. more is how many follow the scope's own fields.
func (l layered) split(scope policy.Scope, more int) (texts, error) {
	t := texts{scope: scope}
	want := len(fieldsOf[scope]) + more
	for _, layer := range []struct {
		text string
		to   *[]string
	}{{l.file, &t.file}, {l.override, &t.override}} {
		if layer.text == "" {
			continue
		}
		if *layer.to = strings.Split(layer.text, separator); len(*layer.to) != want {
			return t, fmt.Errorf("the stored row of a %s is unreadable", scope)
		}
	}
	return t, nil
}

// get answers the value of a field after its layers and where it comes from.
func (t texts) get(i int) (value string, from policy.Layer) {
	switch {
	case t.override != nil && t.override[i] != null:
		return t.override[i], policy.LayerOverride
	case t.file != nil && t.file[i] != null:
		return t.file[i], policy.LayerFile
	}
	return "", policy.LayerDefault
}

// hidden names the fields where an override replaces what a file says.
func (t texts) hidden() []string {
	if t.file == nil || t.override == nil {
		return nil
	}
	var names []string
	for i, name := range fieldsOf[t.scope] {
		if t.file[i] != null && t.override[i] != null {
			names = append(names, name)
		}
	}
	return names
}

// Effective reads the policy of one task as it stands now. No row for the task, the
// session or the named project, a `connectors` that is no list, anything unreadable
// and a database that does not answer within ReadWait are errors: the caller must
// refuse. A `tools` of the wrong type counts as absent and entries that are no
// strings are dropped, both with a warning. The caller must not change the maps and
// slices that it gets: they are shared.
func (s *Store) Effective(ctx context.Context, taskID, session, project string) (policy.Effective, error) {
	ctx, cancel := s.reading(ctx)
	defer cancel()
	e, err := s.readEffective(ctx, taskID, session, project)
	if err != nil {
		return policy.Effective{}, fmt.Errorf("read policy of task %s: %w", taskID, err)
	}
	return e, nil
}

func (s *Store) readEffective(ctx context.Context, taskID, session, project string) (policy.Effective, error) {
	rows, err := s.effective.QueryContext(ctx, taskID, session, project)
	if err != nil {
		return policy.Effective{}, err
	}
	defer rows.Close()
	b := builder{cache: &s.cache, e: policy.Effective{Task: taskID, Session: session, Project: project}}
	for rows.Next() {
		var row string
		if err := rows.Scan(&row); err != nil {
			return policy.Effective{}, err
		}
		b.add(row)
	}
	if err := rows.Err(); err != nil {
		return policy.Effective{}, err
	}
	return b.build()
}

// DayLimits says where limits per day stand, in whatever layer.
type DayLimits struct {
	Daemon          bool
	Projects, Tasks map[string]bool // by id
}

// DayLimits looks, for all of the tasks at once, for limits per day that could
// stop them: their own, those of any project and the daemon's. What is malformed
// counts as one.
func (s *Store) DayLimits(ctx context.Context, tasks []string) (DayLimits, error) {
	ctx, cancel := s.reading(ctx)
	defer cancel()
	found := DayLimits{Projects: map[string]bool{}, Tasks: map[string]bool{}}
	var rows []struct {
		Scope policy.Scope `bun:"scope"`
		ID    string       `bun:"id"`
	}
	err := s.sql.Read.NewSelect().Model((*ruleRow)(nil)).Column("scope", "id").
		Where("r.limits LIKE '%per_day%' OR r.limits NOT LIKE '{%}'").
		Where("r.scope IN (?) OR (r.scope = ? AND r.id IN (?))", bun.List([]policy.Scope{scopeDaemon, policy.ScopeProject}), policy.ScopeTask, bun.List(tasks)).
		Scan(ctx, &rows)
	if err != nil {
		return DayLimits{}, fmt.Errorf("read limits per day: %w", err)
	}
	for _, r := range rows {
		switch r.Scope {
		case policy.ScopeTask:
			found.Tasks[r.ID] = true
		case policy.ScopeProject:
			found.Projects[r.ID] = true
		default:
			found.Daemon = true
		}
	}
	return found, nil
}

// builder turns rows into an Effective.
type builder struct {
	cache                          *caches
	e                              policy.Effective
	task, session, project, daemon layered
	connectors                     []string // their rows
}

func (b *builder) add(row string) {
	scope, rest, _ := strings.Cut(row, separator)
	switch policy.Scope(scope) {
	case policy.ScopeTask:
		b.task.put(rest)
	case policy.ScopeSession:
		b.session.put(rest)
	case policy.ScopeProject:
		b.project.put(rest)
	case scopeDaemon:
		b.daemon.put(rest)
	case policy.ScopeConnector:
		b.connectors = append(b.connectors, rest)
	}
}

// put takes the row of one layer, from its id on.
func (l *layered) put(row string) {
	_, rest, _ := strings.Cut(row, separator)
	layer, fields, _ := strings.Cut(rest, separator)
	if policy.Layer(layer) == policy.LayerOverride {
		l.override = fields
	} else {
		l.file = fields
	}
}

func (b *builder) build() (policy.Effective, error) {
	for _, need := range []struct {
		scope policy.Scope
		id    string
		have  layered
	}{
		{policy.ScopeTask, b.e.Task, b.task}, {policy.ScopeSession, b.e.Session, b.session},
		{policy.ScopeProject, b.e.Project, b.project}, {scopeDaemon, daemonID, b.daemon},
	} {
		if need.have.file == "" && (need.scope != policy.ScopeProject || need.id != "") {
			return policy.Effective{}, fmt.Errorf("%s %q: %w", need.scope, need.id, ErrNoRow)
		}
	}
	for _, step := range []func() error{b.ownFields, b.tierFields, b.rules} {
		if err := step(); err != nil {
			return policy.Effective{}, err
		}
	}
	return b.e, nil
}

// ownFields reads what the task says. Unreadable grants and deny lines are errors:
// leaving one out could widen rights.
func (b *builder) ownFields() error {
	e := &b.e
	e.OnAsk, e.ApprovalTTL = policy.OnAskDeny, policy.DefaultApprovalTTL
	e.Sources = make(map[string]policy.Layer, len(fieldsOf[policy.ScopeTask]))
	fields, err := b.task.split(policy.ScopeTask, 0)
	if err != nil {
		return err
	}
	for _, name := range fields.hidden() {
		e.Hidden = append(e.Hidden, "task "+e.Task+": "+name)
	}
	for i, name := range fieldsOf[policy.ScopeTask] {
		text, from := fields.get(i)
		e.Sources[name] = from
		if from == policy.LayerDefault {
			continue
		}
		if err := b.ownField(name, text); err != nil {
			return err
		}
	}
	e.Limits = e.Limits.Or(policy.DefaultLimits())
	return nil
}

func (b *builder) ownField(name, text string) error {
	c, e := b.cache, &b.e
	switch name {
	case "connectors":
		return b.tier("task", text, &e.TaskConnectors)
	case "tools":
		b.selection(text)
		return nil
	case "allow":
		return cached(&c.allow, name, text, &e.Allow, storedLines(name))
	case "deny":
		return cached(&c.deny, name, text, &e.Deny, storedLines(name))
	case "on_ask":
		return cached(&c.words, name, text, (*string)(&e.OnAsk), parseText)
	case "approval_ttl":
		return cached(&c.ttls, name, text, &e.ApprovalTTL, parseStoredTTL)
	case "limits":
		return cached(&c.limits, "limits of the task", text, &e.Limits, parseLimits)
	}
	return cached(&c.words, name, text, &e.AcceptRisk, parseText)
}

// tier reads one list of reachability.
func (b *builder) tier(who, text string, to *task.List[string]) error {
	list, err := b.cache.ids.get(text, parseIDs)
	if err != nil {
		return fmt.Errorf("connectors of the %s: %w", who, err)
	}
	*to = list.ids
	for _, w := range list.warnings {
		b.e.Warnings = append(b.e.Warnings, "connectors of the "+who+": "+w)
	}
	return nil
}

func (b *builder) selection(text string) {
	list, err := b.cache.ids.get(text, parseIDs)
	if err != nil {
		b.e.Warnings = append(b.e.Warnings, "tools: want a list of connector ids; the stored value counts as absent")
		b.e.Sources["tools"] = policy.LayerDefault
		return
	}
	b.e.Tools = list.ids
	for _, w := range list.warnings {
		b.e.Warnings = append(b.e.Warnings, "tools: "+w)
	}
}

// tierFields reads what the session, the project and the daemon say. A project's
// limits on a run bound the task's own: the tighter one counts. Those on a day are
// for its tasks together.
func (b *builder) tierFields() error {
	fields, err := b.session.split(policy.ScopeSession, 0)
	if err != nil {
		return err
	}
	if text, from := fields.get(0); from != policy.LayerDefault {
		if err := b.tier("session", text, &b.e.SessionConnectors); err != nil {
			return err
		}
	}
	if fields, err = b.project.split(policy.ScopeProject, 0); err != nil {
		return err
	}
	if text, from := fields.get(0); from != policy.LayerDefault {
		if err := b.tier("project", text, &b.e.ProjectConnectors); err != nil {
			return err
		}
	}
	if text, from := fields.get(1); from != policy.LayerDefault {
		var project policy.Limits
		if err := cached(&b.cache.limits, "limits of the project", text, &project, parseLimits); err != nil {
			return err
		}
		b.e.Limits, b.e.Shared = b.e.Limits.Tighter(project.PerRun()), project.PerDay()
	}
	if fields, err = b.daemon.split(scopeDaemon, 0); err != nil {
		return err
	}
	if text, from := fields.get(0); from != policy.LayerDefault {
		if err := cached(&b.cache.limits, "limits of the daemon", text, &b.e.Day, parseLimits); err != nil {
			return err
		}
	}
	if text, from := fields.get(1); from != policy.LayerDefault {
		return cached(&b.cache.deny, "deny of the daemon", text, &b.e.Ceiling, storedLines("deny"))
	}
	return nil
}

// rules takes over what the connectors' rows say.
func (b *builder) rules() error {
	all, err := b.cache.latest.get(b.connectors, b.cache.parseConnectors)
	if err != nil {
		return err
	}
	b.e.Connectors = all.byID
	if len(all.hidden) > 0 {
		b.e.Hidden = append(b.e.Hidden, all.hidden...)
		slices.Sort(b.e.Hidden)
	}
	return nil
}

// connectorRules are the rules of all connectors and the fields that overrides hide.
type connectorRules struct {
	byID   map[string]policy.ConnectorRules
	hidden []string
}

// parseConnectors reads every connector. One that no file configures does not exist,
// whatever an override says of it.
func (c *caches) parseConnectors(rows []string) (connectorRules, error) {
	layers := map[string]layered{}
	for _, row := range rows {
		id, _, _ := strings.Cut(row, separator)
		l := layers[id]
		l.put(row)
		layers[id] = l
	}
	all := connectorRules{byID: make(map[string]policy.ConnectorRules, len(layers))}
	for id, l := range layers {
		if l.file == "" {
			continue
		}
		parsed, err := c.rules.get(l, parseRules)
		if err != nil {
			return connectorRules{}, fmt.Errorf("connector %s: %w", id, err)
		}
		all.byID[id] = parsed.rules
		for _, name := range parsed.hidden {
			all.hidden = append(all.hidden, "connector "+id+": "+name)
		}
	}
	return all, nil
}

// parsedRules are a connector's rules and the fields that an override hides.
type parsedRules struct {
	rules  policy.ConnectorRules
	hidden []string
}

func parseRules(l layered) (out parsedRules, err error) {
	fields, err := l.split(policy.ScopeConnector, 1)
	if err != nil {
		return out, err
	}
	rules := policy.ConnectorRules{Pin: policy.PinFirstUse}
	var disabled task.List[string]
	var flags task.List[policy.Flag]
	targets := []any{&rules.Classes, &disabled, &rules.TrustAnnotations, &flags, &rules.Pin, &rules.Origin}
	for i, to := range targets {
		text, from := fields.get(i)
		if from == policy.LayerDefault {
			continue
		}
		if err := json.Unmarshal([]byte(text), to); err != nil {
			return out, fmt.Errorf("%s is unreadable: %w", fieldsOf[policy.ScopeConnector][i], err)
		}
	}
	rules.Disabled, rules.Flags = disabled.Items(), flags.Items()
	if err := rules.Settle(); err != nil {
		return out, err
	}
	if text := fields.file[len(targets)]; text != null {
		if rules.Pins, err = parsePins(text); err != nil {
			return out, err
		}
	}
	return parsedRules{rules, fields.hidden()}, nil
}

// checkedIDs is a list of connector ids and what was dropped from it.
type checkedIDs struct {
	ids      task.List[string]
	warnings []string
}

func parseIDs(text string) (checkedIDs, error) {
	ids, warnings, err := idList([]byte(text), nil)
	return checkedIDs{ids, warnings}, err
}

// storedLines reads the lines of a field. One that is not understood makes all of
// them unreadable, so that every call is refused.
func storedLines(field string) func(string) ([]policy.Grant, error) {
	return func(text string) ([]policy.Grant, error) {
		list, err := parseLines(field, json.RawMessage(text))
		return list.Items(), err
	}
}

func parseText(text string) (string, error) { return decode[string](json.RawMessage(text), "a string") }

func parseLimits(text string) (policy.Limits, error) {
	return decode[policy.Limits](json.RawMessage(text), "limits")
}

func parseStoredTTL(text string) (time.Duration, error) {
	s, err := parseText(text)
	if err != nil {
		return 0, err
	}
	return parseTTL(s)
}
