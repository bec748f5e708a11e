package connector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"runnerd/task"
)

// What a tool's definition may measure, in bytes. What is larger is dropped: it
// would be paid for with every model call.
const (
	maxDescription = 32 << 10
	maxSchema      = 256 << 10
	maxListBytes   = 8 << 20
	maxWarnings    = 20
)

// toolName is what a tool may be called: the protocol's own advice and the few
// signs beyond it that real servers use. Anything else, look-alikes of other
// alphabets among it, is dropped.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_.:/@-]{1,128}$`)

// tools returns the newest list, fetching it if the server announced another.
// However often it announces, a caller fetches once.
func (s *session) tools(ctx context.Context) ([]task.Tool, error) {
	if s.isDead() {
		return nil, unsent{s.explain(s.deathCause())}
	}
	if s.dirty.Load() {
		if err := s.refresh(ctx); err != nil {
			return nil, err
		}
	}
	s.listMu.Lock()
	defer s.listMu.Unlock()
	return slices.Clone(s.list), nil
}

// refresh fetches the list, one fetch at a time, within the list deadline.
func (s *session) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.conn.pool.limits.List)
	defer cancel()
	stop := context.AfterFunc(s.conn.pool.ctx, cancel)
	defer stop()
	select {
	case s.fetch <- struct{}{}:
		defer func() { <-s.fetch }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !s.dirty.Swap(false) {
		return nil // another caller has just fetched it
	}
	raw, err := s.pages(ctx)
	if err != nil {
		s.dirty.Store(true)
		return err
	}
	list, warnings := definitions{redact: s.conn.pool.redact, schema: s.conn.pool.opts.Schema}.parse(raw)
	s.listMu.Lock()
	changed := !slices.Equal(s.warnings, warnings)
	s.list, s.warnings = list, warnings
	s.listMu.Unlock()
	if changed {
		for _, w := range warnings {
			s.conn.log.Warn("tool dropped", zap.String(keyWarning, w))
		}
	}
	return nil
}

// pages fetches every page and returns the raw definitions.
func (s *session) pages(ctx context.Context) ([]json.RawMessage, error) {
	limits := s.conn.pool.limits
	var all []json.RawMessage
	var size int
	seen := map[string]bool{}
	cursor := ""
	for range limits.Pages {
		page, err := s.page(ctx, cursor)
		if err != nil {
			return nil, err
		}
		for _, t := range page.Tools {
			size += len(t)
		}
		all = append(all, page.Tools...)
		if len(all) > limits.Tools || size > maxListBytes {
			return nil, advise("use a server, or an option of it, that offers fewer",
				"it lists more than %d tools or %d MiB of definitions", limits.Tools, maxListBytes>>20)
		}
		if page.NextCursor == "" {
			return all, nil
		}
		if seen[page.NextCursor] {
			return nil, errors.New("its list of tools has no end: a page repeats an earlier cursor")
		}
		seen[page.NextCursor] = true
		cursor = page.NextCursor
	}
	return nil, fmt.Errorf("its list of tools has no end: more than %d pages", limits.Pages)
}

// listPage is one page as the server wrote it.
type listPage struct {
	Tools      []json.RawMessage `json:"tools"`
	NextCursor string            `json:"nextCursor"`
}

// page fetches one page. The raw text is what counts, since the SDK's types
// cannot tell a hint that is absent from one that is false and refuse a whole
// page for one odd tool; where it could not be had, the SDK's reading is used,
// with such hints as absent.
func (s *session) page(ctx context.Context, cursor string) (listPage, error) {
	n := &note{}
	params := &mcp.ListToolsParams{Cursor: cursor}
	res, err := s.mcp.ListTools(context.WithValue(ctx, noteKey{}, n), params)
	var page listPage
	if a, _, _ := n.read(); a != nil && a.err == nil && len(a.result) > 0 && json.Unmarshal(a.result, &page) == nil {
		return page, nil
	}
	if err != nil {
		return page, s.listFailure(ctx, n, err)
	}
	page.NextCursor = res.NextCursor
	for _, t := range res.Tools {
		raw, err := json.Marshal(t)
		if err != nil {
			return page, fmt.Errorf("unreadable definition: %w", err)
		}
		page.Tools = append(page.Tools, raw)
	}
	return page, nil
}

// listFailure words a failed page. A server without tools may say so by not
// knowing the method.
func (s *session) listFailure(ctx context.Context, n *note, err error) error {
	if a, _, _ := n.read(); a != nil && a.err != nil {
		werr, init := a.err, s.mcp.InitializeResult()
		if werr.Code == jsonrpc.CodeMethodNotFound && init != nil && (init.Capabilities == nil || init.Capabilities.Tools == nil) {
			return nil
		}
		return fmt.Errorf("the server answered with an error: %s (%d)", werr.Message, werr.Code)
	}
	return s.failure(ctx, n, fmt.Errorf("no list within %s", s.conn.pool.limits.List), err)
}

// definitions reads what servers say of their tools. Secrets are taken out
// before anybody stores or shows it.
type definitions struct {
	redact func(string) string
	schema func(json.RawMessage) error
}

// parse reads definitions one by one. A tool that cannot be used safely is
// dropped with a warning; of a name that comes twice neither is kept, since
// nobody can say which of them a decision is about.
func (d definitions) parse(raw []json.RawMessage) ([]task.Tool, []string) {
	var warnings []string
	warn := func(format string, args ...any) {
		if len(warnings) < maxWarnings {
			warnings = append(warnings, d.redact(fmt.Sprintf(format, args...)))
		}
	}
	count := map[string]int{}
	var all []task.Tool
	for i, r := range raw {
		t, err := d.tool(r)
		if t.Name != "" {
			count[t.Name]++
		}
		if err != nil {
			warn("tool %d (%s) is dropped: %v", i+1, oneLine(t.Name, 64), err)
			continue
		}
		all = append(all, t)
	}
	list := []task.Tool{}
	for _, t := range all {
		switch n := count[t.Name]; n {
		case 1:
			list = append(list, t)
		case 0: // warned already
		default:
			warn("tool %s is dropped: the server lists %d of that name", t.Name, n)
			count[t.Name] = 0
		}
	}
	return list, warnings
}

// tool reads one definition. With an error, only the name is of use.
func (d definitions) tool(raw json.RawMessage) (task.Tool, error) {
	var wire struct {
		Name         string          `json:"name"`
		Title        string          `json:"title"`
		Description  string          `json:"description"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema"`
		Annotations  json.RawMessage `json:"annotations"`
	}
	if err := json.Unmarshal(withoutSecrets(raw, d.redact), &wire); err != nil {
		return task.Tool{Name: wire.Name}, fmt.Errorf("its definition is malformed: %v", err)
	}
	t := task.Tool{Name: wire.Name, Title: wire.Title, Description: wire.Description}
	var err error
	switch {
	case !toolName.MatchString(wire.Name):
		return t, errors.New("its name is empty, too long or has signs other than letters, digits and _ . : / @ -")
	case len(wire.Description) > maxDescription || len(wire.Title) > maxDescription:
		return t, fmt.Errorf("its description has more than %d bytes", maxDescription)
	}
	if t.InputSchema, err = schema(wire.InputSchema); err != nil {
		return t, fmt.Errorf("its inputSchema %v", err)
	}
	if err := d.schema(t.InputSchema); err != nil {
		return t, fmt.Errorf("no call of it could be checked: %w", err)
	}
	if err := checkParamHeaders(t.InputSchema); err != nil {
		return t, fmt.Errorf("its inputSchema %w", err)
	}
	if len(wire.OutputSchema) > 0 && !isNull(wire.OutputSchema) {
		if t.OutputSchema, err = schema(wire.OutputSchema); err != nil {
			return t, fmt.Errorf("its outputSchema %v", err)
		}
	}
	if len(wire.Annotations) > 0 && !isNull(wire.Annotations) {
		if err := json.Unmarshal(wire.Annotations, &t.Annotations); err != nil {
			return t, fmt.Errorf("its annotations are malformed: %v", err)
		}
	}
	t.Hash = t.DefinitionHash()
	return t, nil
}

// withoutSecrets is raw, anew only if a text in it, as it reads once decoded,
// holds a secret.
func withoutSecrets(raw json.RawMessage, redact func(string) string) json.RawMessage {
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	var v any
	if in.Decode(&v) != nil {
		return json.RawMessage(redact(string(raw)))
	}
	found := false
	v = redactIn(v, func(s string) string {
		clean := redact(s)
		found = found || clean != s
		return clean
	})
	if !found {
		return raw
	}
	clean, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return clean
}

// redactIn is a JSON value with every text in it, keys too, passed through f.
func redactIn(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case []any:
		for i := range v {
			v[i] = redactIn(v[i], f)
		}
	case map[string]any:
		clean := make(map[string]any, len(v))
		for k, e := range v {
			clean[f(k)] = redactIn(e, f)
		}
		return clean
	}
	return v
}

// schema accepts a JSON object of bounded size, compacted so that its hash does
// not depend on white space.
func schema(raw json.RawMessage) (json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || isNull(raw):
		return nil, errors.New("is missing")
	case raw[0] != '{':
		return nil, errors.New("is no JSON object")
	case len(raw) > maxSchema:
		return nil, fmt.Errorf("has more than %d bytes", maxSchema)
	}
	var buf bytes.Buffer
	if err := json.Compact(&buf, raw); err != nil {
		return nil, fmt.Errorf("is malformed: %v", err)
	}
	return buf.Bytes(), nil
}

func isNull(raw json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(raw), []byte("null")) }
