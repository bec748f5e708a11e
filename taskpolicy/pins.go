package taskpolicy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/uptrace/bun"

	"runnerd/policy"
	"runnerd/task"
)

const layerPin = "pin"

type pinRow struct {
	bun.BaseModel `bun:"table:policy_pins,alias:p"`
	Connector     string `bun:"connector,pk"`
	Pins          string `bun:"pins"`
}

type definitionRow struct {
	bun.BaseModel `bun:"table:policy_definitions,alias:d"`
	Connector     string `bun:"connector,pk"`
	Tool          string `bun:"tool,pk"`
	Hash          string `bun:"hash"`
	Definition    string `bun:"definition"`
	AcceptedAt    int64  `bun:"accepted_at"`
	AcceptedBy    string `bun:"accepted_by"`
}

// Accept pins a connector's definitions at first use. Once anything of the
// connector is pinned it does nothing: it never replaces a pin, and a tool that
// appears later is new to whoever accepted the rest, so it stays quarantined until
// AcceptTools. A connector with `pin: strict` is refused.
func (s *Store) Accept(ctx context.Context, connector string, tools []task.Tool, by string) error {
	if len(tools) == 0 {
		return nil
	}
	pinned, err := s.pinned(ctx, connector)
	if err != nil || pinned {
		return err
	}
	return s.transact(ctx, "accept definitions of "+connector, by, func(ctx context.Context, c *change) error {
		have, err := c.pins(ctx, connector)
		if err != nil || have != nil {
			return err
		}
		mode, err := c.pinMode(ctx, connector)
		if err != nil {
			return err
		}
		if mode != policy.PinFirstUse {
			return fmt.Errorf("pin is %s: a person has to accept them (runnerd connectors accept %s)", mode, connector)
		}
		return c.pin(ctx, connector, nil, tools)
	})
}

func (s *Store) pinned(ctx context.Context, connector string) (bool, error) {
	ctx, cancel := s.reading(ctx)
	defer cancel()
	found, err := s.sql.Read.NewSelect().Model((*pinRow)(nil)).Where("p.connector = ?", connector).Exists(ctx)
	if err != nil {
		return false, fmt.Errorf("read pins of %s: %w", connector, err)
	}
	return found, nil
}

// AcceptTools replaces the pins of the named tools with the definitions in tools,
// as a person's decision. Without names it replaces all of them: pins of tools that
// are not listed any more go.
func (s *Store) AcceptTools(ctx context.Context, connector string, tools []task.Tool, names []string, by string) error {
	return s.transact(ctx, "accept definitions of "+connector, by, func(ctx context.Context, c *change) error {
		have, err := c.pins(ctx, connector)
		if err != nil {
			return err
		}
		if _, err := c.pinMode(ctx, connector); err != nil {
			return err
		}
		if len(names) == 0 {
			return c.replaceAll(ctx, connector, have, tools)
		}
		chosen, err := choose(tools, names)
		if err != nil {
			return err
		}
		return c.pin(ctx, connector, have, chosen)
	})
}

func choose(tools []task.Tool, names []string) ([]task.Tool, error) {
	var chosen []task.Tool
	for _, name := range names {
		i := slices.IndexFunc(tools, func(t task.Tool) bool { return t.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("the connector lists no tool %q", clip(name))
		}
		chosen = append(chosen, tools[i])
	}
	return chosen, nil
}

func (c *change) replaceAll(ctx context.Context, connector string, have map[string]string, tools []task.Tool) error {
	if len(tools) == 0 {
		return errors.New("the connector lists no tools")
	}
	kept := map[string]string{}
	for _, name := range sortedKeys(have) {
		if slices.ContainsFunc(tools, func(t task.Tool) bool { return t.Name == name }) {
			kept[name] = have[name]
			continue
		}
		old := quoted(have[name])
		if err := c.record(ctx, entry{policy.ScopeConnector, connector, layerPin, "pin " + name, &old, nil}); err != nil {
			return err
		}
		_, err := c.tx.NewDelete().Model((*definitionRow)(nil)).Where("connector = ? AND tool = ?", connector, name).Exec(ctx)
		if err != nil {
			return err
		}
	}
	return c.pin(ctx, connector, kept, tools)
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func quoted(s string) string {
	data, _ := json.Marshal(s)
	return string(data)
}

// pin adds tools to the pins that are there and stores both.
func (c *change) pin(ctx context.Context, connector string, pins map[string]string, tools []task.Tool) error {
	if pins == nil {
		pins = map[string]string{}
	}
	for _, t := range unequivocal(tools) {
		var old *string
		if before, known := pins[t.Name]; known {
			if before == t.Hash {
				continue
			}
			text := quoted(before)
			old = &text
		}
		pins[t.Name] = t.Hash
		now := quoted(t.Hash)
		if err := c.record(ctx, entry{policy.ScopeConnector, connector, layerPin, "pin " + t.Name, old, &now}); err != nil {
			return err
		}
		if err := c.define(ctx, connector, t); err != nil {
			return err
		}
	}
	data, err := json.Marshal(pins)
	if err != nil {
		return err
	}
	_, err = c.tx.NewInsert().Model(&pinRow{Connector: connector, Pins: string(data)}).
		On("CONFLICT (connector) DO UPDATE").Set("pins = EXCLUDED.pins").Exec(ctx)
	return err
}

func (c *change) define(ctx context.Context, connector string, t task.Tool) error {
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("tool %q: %w", clip(t.Name), err)
	}
	row := &definitionRow{
		Connector: connector, Tool: t.Name, Hash: t.Hash, Definition: string(data), AcceptedAt: c.at.UnixMicro(), AcceptedBy: c.by,
	}
	_, err = c.tx.NewInsert().Model(row).On("CONFLICT (connector, tool) DO UPDATE").
		Set("hash = EXCLUDED.hash").Set("definition = EXCLUDED.definition").
		Set("accepted_at = EXCLUDED.accepted_at").Set("accepted_by = EXCLUDED.accepted_by").Exec(ctx)
	return err
}

// unequivocal fills in hashes and leaves out names that are listed with more than
// one definition, as a call could mean either, and definitions that are no JSON.
func unequivocal(tools []task.Tool) []task.Tool {
	count := map[string]map[string]bool{}
	for i := range tools {
		t := tools[i]
		if t.Hash == "" {
			t.Hash = t.DefinitionHash()
		}
		if count[t.Name] == nil {
			count[t.Name] = map[string]bool{}
		}
		count[t.Name][t.Hash] = true
	}
	var out []task.Tool
	for _, t := range tools {
		if len(count[t.Name]) != 1 || t.Name == "" || !storable(t) {
			continue
		}
		delete(count, t.Name)
		if t.Hash == "" {
			t.Hash = t.DefinitionHash()
		}
		out = append(out, t)
	}
	return out
}

// storable tells whether the definition is JSON throughout.
func storable(t task.Tool) bool {
	_, err := json.Marshal(t)
	return err == nil
}

// pins answers the accepted hashes, nil if nothing was ever accepted.
func (c *change) pins(ctx context.Context, connector string) (map[string]string, error) {
	var rows []pinRow
	if err := c.tx.NewSelect().Model(&rows).Where("p.connector = ?", connector).Scan(ctx); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, nil
	}
	return parsePins(rows[0].Pins)
}

func parsePins(text string) (map[string]string, error) {
	pins := map[string]string{}
	if err := json.Unmarshal([]byte(text), &pins); err != nil || pins == nil {
		return nil, fmt.Errorf("stored pins are unreadable: %s", clip(text))
	}
	return pins, nil
}

// pinMode is the connector's mode after its layers; the connector must exist.
func (c *change) pinMode(ctx context.Context, connector string) (policy.PinMode, error) {
	file, override, err := layers(ctx, c.tx, policy.ScopeConnector, connector)
	if err != nil {
		return "", err
	}
	text := file.Pin
	if override != nil && override.Pin != nil {
		text = override.Pin
	}
	return pinModeOf(text)
}

func pinModeOf(text *string) (policy.PinMode, error) {
	if text == nil {
		return policy.PinFirstUse, nil
	}
	return oneOf(json.RawMessage(*text), policy.PinFirstUse, policy.PinStrict)
}

// Definitions answers the accepted definitions of a connector, by name, for a diff
// against what it lists now.
func (s *Store) Definitions(ctx context.Context, connector string) ([]task.Tool, error) {
	ctx, cancel := s.reading(ctx)
	defer cancel()
	var rows []definitionRow
	if err := s.sql.Read.NewSelect().Model(&rows).Where("d.connector = ?", connector).Order("d.tool").Scan(ctx); err != nil {
		return nil, fmt.Errorf("read definitions of %s: %w", connector, err)
	}
	tools := make([]task.Tool, 0, len(rows))
	for _, r := range rows {
		var t task.Tool
		if err := json.Unmarshal([]byte(r.Definition), &t); err != nil {
			return nil, fmt.Errorf("read definition of %s/%s: %w", connector, r.Tool, err)
		}
		t.Hash = r.Hash
		tools = append(tools, t)
	}
	return tools, nil
}
