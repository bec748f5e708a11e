package policy

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
