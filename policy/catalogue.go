package policy

import (
	_ "embed"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed catalogue.yaml
var catalogueFile []byte

// catalogueEntry is what is known of one well-known server.
type catalogueEntry struct {
	Why       string              `yaml:"why"`
	Keys      []string            `yaml:"keys"` // packages and URL hosts
	Read      []string            `yaml:"read"`
	Write     []string            `yaml:"write"`
	Exec      []string            `yaml:"exec"`
	Flags     []string            `yaml:"flags"`
	ToolFlags map[string][]string `yaml:"tool_flags"`

	classes map[string]Class
	flags   []Flag
}

// catalogue is the shipped data, by key. A file that does not parse gives an empty
// catalogue, under which every tool counts as exec; a test keeps it parsing.
var catalogue = sync.OnceValue(func() map[string]*catalogueEntry {
	entries, err := parseCatalogue(catalogueFile)
	if err != nil {
		return nil
	}
	return entries
})

func parseCatalogue(data []byte) (map[string]*catalogueEntry, error) {
	var list []*catalogueEntry
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	dec.KnownFields(true)
	if err := dec.Decode(&list); err != nil {
		return nil, fmt.Errorf("parse catalogue: %w", err)
	}
	byKey := map[string]*catalogueEntry{}
	for _, e := range list {
		if err := e.index(); err != nil {
			return nil, err
		}
		for _, key := range e.Keys {
			if byKey[key] != nil {
				return nil, fmt.Errorf("parse catalogue: %s stands there twice", key)
			}
			byKey[key] = e
		}
	}
	return byKey, nil
}

func (e *catalogueEntry) index() error {
	if e.Why == "" || len(e.Keys) == 0 {
		return fmt.Errorf("parse catalogue: entry %v needs why and keys", e.Keys)
	}
	e.classes = map[string]Class{}
	for class, tools := range map[Class][]string{ClassRead: e.Read, ClassWrite: e.Write, ClassExec: e.Exec} {
		for _, tool := range tools {
			if _, seen := e.classes[tool]; seen {
				return fmt.Errorf("parse catalogue: %s: %s has two classes", e.Keys[0], tool)
			}
			e.classes[tool] = class
		}
	}
	for _, kind := range e.Flags {
		e.flags = append(e.flags, Flag{Kind: kind})
	}
	for tool, kinds := range e.ToolFlags {
		if _, known := e.classes[tool]; !known {
			return fmt.Errorf("parse catalogue: %s: flags on the unlisted tool %s", e.Keys[0], tool)
		}
		for _, kind := range kinds {
			e.flags = append(e.flags, Flag{Tool: tool, Kind: kind})
		}
	}
	for _, f := range e.flags {
		if f.Kind != FlagUntrusted && f.Kind != FlagPrivate && f.Kind != FlagEgress {
			return fmt.Errorf("parse catalogue: %s: unknown flag %q", e.Keys[0], f.Kind)
		}
	}
	return nil
}

// catalogued finds the entry of a connector, with the key that found it. Only the
// operator's own words count: the package in the command, or the host of an https
// URL on the usual port.
func catalogued(origin Origin) (*catalogueEntry, string) {
	if origin.Package != "" {
		return catalogue()[origin.Package], origin.Package
	}
	if origin.URL == "" {
		return nil, ""
	}
	u, err := url.Parse(origin.URL)
	if err != nil || u.Scheme != "https" || u.Port() != "" && u.Port() != "443" {
		return nil, ""
	}
	host := strings.ToLower(u.Hostname())
	return catalogue()[host], host
}
