package policy

import (
	"fmt"
	"slices"
)

// RulesOf is what a connector's own fields say, without accepted definitions. A
// file that says nothing of pin means first use; the zero PinMode is strict.
func RulesOf(f Fields) ConnectorRules {
	r := ConnectorRules{Classes: f.Classes, Disabled: f.DisabledTools.Items(), Flags: f.Flags.Items(), Pin: PinFirstUse}
	if f.TrustAnnotations != nil {
		r.TrustAnnotations = *f.TrustAnnotations
	}
	if f.Pin != nil {
		r.Pin = *f.Pin
	}
	if f.Origin != nil {
		r.Origin = *f.Origin
	}
	return r
}

// Disabled tells whether disabled_tools hides and refuses the tool.
func Disabled(rules ConnectorRules, tool string) bool { return disabled(rules, tool) != "" }

// Check says which pattern of the connector's own fields is not understood.
func (r ConnectorRules) Check() error {
	check := func(field, pattern string) error {
		if f := PatternFault(pattern); f != nil {
			return fmt.Errorf("%s: %w", field, f)
		}
		return nil
	}
	patterns := make([]string, 0, len(r.Classes))
	for pattern := range r.Classes {
		patterns = append(patterns, pattern)
	}
	slices.Sort(patterns)
	for _, pattern := range patterns {
		if err := check("classes", pattern); err != nil {
			return err
		}
	}
	for _, pattern := range r.Disabled {
		if err := check("disabled_tools", pattern); err != nil {
			return err
		}
	}
	for _, f := range r.Flags {
		if f.Tool == "" {
			continue
		}
		if err := check("flags", f.Tool); err != nil {
			return err
		}
	}
	return nil
}
