package taskpolicy

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"runnerd/policy"
	"runnerd/task"
)

// The columns of effectiveQuery: scope, id and layer, then eight texts whose
// meaning depends on the scope. They are the fields of a task in order; for a
// connector its own six and the pins.
const (
	effectiveTexts = 8
	atPins         = 6
)

// effectiveQuery reads the rows of one task, session and project, the daemon's, and
// those of every connector with its pins: all that a decision depends on, in one
// statement and so in one snapshot.
func effectiveQuery(postgres bool) string {
	query := `SELECT scope, id, layer, connectors, tools, allow, deny, on_ask, approval_ttl, limits, accept_risk
	FROM policy_rows WHERE scope = 'task' AND id = ?
UNION ALL SELECT scope, id, layer, connectors, NULL, NULL, NULL, NULL, NULL, limits, NULL
	FROM policy_rows WHERE scope = 'session' AND id = ?
UNION ALL SELECT scope, id, layer, connectors, NULL, NULL, NULL, NULL, NULL, limits, NULL
	FROM policy_rows WHERE scope = 'project' AND id = ?
UNION ALL SELECT scope, id, layer, connectors, NULL, NULL, NULL, NULL, NULL, limits, NULL
	FROM policy_rows WHERE scope = 'daemon' AND id = 'daemon'
UNION ALL SELECT r.scope, r.id, r.layer, r.classes, r.disabled_tools, r.trust_annotations, r.flags, r.pin, r.origin, p.pins, NULL
	FROM policy_rows r LEFT JOIN policy_pins p ON p.connector = r.id WHERE r.scope = 'connector'`
	if postgres {
		for i := 1; strings.Contains(query, "?"); i++ {
			query = strings.Replace(query, "?", "$"+strconv.Itoa(i), 1)
		}
	}
	return query
}

// stored is one row of effectiveQuery.
type stored struct {
	scope, id, layer string
	texts            [effectiveTexts]sql.NullString
}

// layered is what both layers say about one scope and id.
type layered struct {
	file, override *stored
}

// text answers the value of a field after its layers and where it comes from.
func (l *layered) text(i int) (value sql.NullString, from policy.Layer) {
	if l.override != nil && l.override.texts[i].Valid {
		return l.override.texts[i], policy.LayerOverride
	}
	if l.file != nil && l.file.texts[i].Valid {
		return l.file.texts[i], policy.LayerFile
	}
	return sql.NullString{}, policy.LayerDefault
}

// hides tells whether an override replaces what a file says.
func (l *layered) hides(i int) bool {
	return l.file != nil && l.override != nil && l.file.texts[i].Valid && l.override.texts[i].Valid
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
	b.connectors = make(map[string]*layered, 16)
	for rows.Next() {
		r := &stored{}
		t := &r.texts
		err := rows.Scan(&r.scope, &r.id, &r.layer, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7])
		if err != nil {
			return policy.Effective{}, err
		}
		b.add(r)
	}
	if err := rows.Err(); err != nil {
		return policy.Effective{}, err
	}
	return b.build()
}

// builder turns rows into an Effective.
type builder struct {
	cache                          *caches
	e                              policy.Effective
	task, session, project, daemon layered
	connectors                     map[string]*layered
}

func (b *builder) add(r *stored) {
	var l *layered
	switch policy.Scope(r.scope) {
	case policy.ScopeTask:
		l = &b.task
	case policy.ScopeSession:
		l = &b.session
	case policy.ScopeProject:
		l = &b.project
	case scopeDaemon:
		l = &b.daemon
	default:
		if l = b.connectors[r.id]; l == nil {
			l = &layered{}
			b.connectors[r.id] = l
		}
	}
	if policy.Layer(r.layer) == policy.LayerOverride {
		l.override = r
	} else {
		l.file = r
	}
}

func (b *builder) build() (policy.Effective, error) {
	for _, need := range []struct {
		scope policy.Scope
		id    string
		have  *layered
	}{{policy.ScopeTask, b.e.Task, &b.task}, {policy.ScopeSession, b.e.Session, &b.session}, {policy.ScopeProject, b.e.Project, &b.project}} {
		if need.have.file == nil && (need.scope != policy.ScopeProject || need.id != "") {
			return policy.Effective{}, fmt.Errorf("%s %q: %w", need.scope, need.id, ErrNoRow)
		}
	}
	for _, step := range []func() error{b.tiers, b.taskFields, b.limits, b.rules} {
		if err := step(); err != nil {
			return policy.Effective{}, err
		}
	}
	return b.e, nil
}

// tiers reads the three lists of reachability.
func (b *builder) tiers() error {
	for _, tier := range []struct {
		name string
		rows *layered
		to   *task.List[string]
	}{{"task", &b.task, &b.e.TaskConnectors}, {"session", &b.session, &b.e.SessionConnectors}, {"project", &b.project, &b.e.ProjectConnectors}} {
		text, _ := tier.rows.text(0)
		if !text.Valid {
			continue
		}
		list, err := b.cache.ids.get(text.String, parseIDs)
		if err != nil {
			return fmt.Errorf("connectors of the %s: %w", tier.name, err)
		}
		*tier.to = list.ids
		for _, w := range list.warnings {
			b.e.Warnings = append(b.e.Warnings, "connectors of the "+tier.name+": "+w)
		}
	}
	return nil
}

// taskFields reads what only a task has. Unreadable grants and deny lines are
// errors: leaving one out could widen rights.
func (b *builder) taskFields() error {
	b.e.Sources = make(map[string]policy.Layer, effectiveTexts)
	e := &b.e
	var texts [effectiveTexts]sql.NullString
	for i, name := range fieldsOf[policy.ScopeTask] {
		texts[i], e.Sources[name] = b.task.text(i)
		if b.task.hides(i) {
			e.Hidden = append(e.Hidden, "task "+e.Task+": "+name)
		}
	}
	if texts[1].Valid {
		list, err := b.cache.ids.get(texts[1].String, parseIDs)
		if err != nil {
			e.Warnings = append(e.Warnings, "tools: want a list of connector ids; the stored value counts as absent")
			e.Sources["tools"] = policy.LayerDefault
		} else {
			e.Tools = list.ids
			for _, w := range list.warnings {
				e.Warnings = append(e.Warnings, "tools: "+w)
			}
		}
	}
	e.OnAsk, e.ApprovalTTL = policy.OnAskDeny, policy.DefaultApprovalTTL
	for _, err := range []error{
		cached(&b.cache.grants, "allow", texts[2], &e.Allow, parseGrants),
		cached(&b.cache.grants, "deny", texts[3], &e.Deny, parseGrants),
		cached(&b.cache.texts, "on_ask", texts[4], (*string)(&e.OnAsk), parseText),
		cached(&b.cache.ttls, "approval_ttl", texts[5], &e.ApprovalTTL, parseStoredTTL),
		cached(&b.cache.texts, "accept_risk", texts[7], &e.AcceptRisk, parseText),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// limits holds the task's limits, completed by the defaults, against the
// project's: the tighter one counts.
func (b *builder) limits() error {
	var own, project policy.Limits
	for _, l := range []struct {
		name string
		rows *layered
		to   *policy.Limits
	}{{"limits of the task", &b.task, &own}, {"limits of the project", &b.project, &project}, {"limits of the daemon", &b.daemon, &b.e.Day}} {
		text, _ := l.rows.text(6)
		if err := cached(&b.cache.limits, l.name, text, l.to, parseLimits); err != nil {
			return err
		}
	}
	b.e.Limits = own.Or(policy.DefaultLimits()).Tighter(project)
	return nil
}

// rules reads every connector. One that no file configures does not exist, whatever
// an override says of it.
func (b *builder) rules() error {
	b.e.Connectors = make(map[string]policy.ConnectorRules, len(b.connectors))
	for id, l := range b.connectors {
		if l.file == nil {
			continue
		}
		var key rulesKey
		for i := range key {
			key[i], _ = l.text(i)
			if i < atPins && l.hides(i) {
				b.e.Hidden = append(b.e.Hidden, "connector "+id+": "+fieldsOf[policy.ScopeConnector][i])
			}
		}
		rules, err := b.cache.rules.get(key, parseRules)
		if err != nil {
			return fmt.Errorf("connector %s: %w", id, err)
		}
		b.e.Connectors[id] = rules
	}
	return nil
}

// rulesKey is everything that ConnectorRules is made of, as it is stored.
type rulesKey [atPins + 1]sql.NullString

func parseRules(key rulesKey) (policy.ConnectorRules, error) {
	rules := policy.ConnectorRules{Pin: policy.PinFirstUse}
	var disabled task.List[string]
	var flags task.List[policy.Flag]
	for i, to := range []any{&rules.Classes, &disabled, &rules.TrustAnnotations, &flags, &rules.Pin, &rules.Origin} {
		if !key[i].Valid {
			continue
		}
		if err := json.Unmarshal([]byte(key[i].String), to); err != nil {
			return rules, fmt.Errorf("%s is unreadable: %w", fieldsOf[policy.ScopeConnector][i], err)
		}
	}
	rules.Disabled, rules.Flags = disabled.Items(), flags.Items()
	if key[atPins].Valid {
		pins, err := parsePins(key[atPins].String)
		if err != nil {
			return rules, err
		}
		rules.Pins = pins
	}
	return rules, nil
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

func parseGrants(text string) ([]policy.Grant, error) {
	list, err := decode[task.List[policy.Grant]](json.RawMessage(text), "a list of rules")
	return list.Items(), err
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
