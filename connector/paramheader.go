package connector

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// headerName is an HTTP field name (RFC 9110, section 5.1).
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// checkParamHeaders looks at the parameters that a schema wants to be sent as
// HTTP headers too (x-mcp-header), at any depth. The protocol says that a tool
// with a wrong one must not be used: what proxies on the way would see is not
// what the server reads.
func checkParamHeaders(schema json.RawMessage) error {
	var s any
	if err := json.Unmarshal(schema, &s); err != nil {
		return fmt.Errorf("is malformed: %w", err)
	}
	return checkHeadersIn(s, map[string]bool{})
}

func checkHeadersIn(schema any, seen map[string]bool) error {
	object, _ := schema.(map[string]any)
	properties, _ := object["properties"].(map[string]any)
	for name, p := range properties {
		property, _ := p.(map[string]any)
		if header, ok := property["x-mcp-header"]; ok {
			if err := checkHeader(property["type"], header, seen); err != nil {
				return fmt.Errorf("has a wrong x-mcp-header on property %s: %w", oneLine(name, 64), err)
			}
		}
		if err := checkHeadersIn(p, seen); err != nil {
			return err
		}
	}
	return nil
}

func checkHeader(kind, header any, seen map[string]bool) error {
	if kind != "string" && kind != "integer" && kind != "boolean" {
		return fmt.Errorf("its type is %s, want a string, an integer or a boolean", oneLine(fmt.Sprint(kind), 64))
	}
	name, _ := header.(string)
	lower := strings.ToLower(name)
	switch {
	case !headerName.MatchString(name):
		return fmt.Errorf("%s is no name of an HTTP header", oneLine(fmt.Sprint(header), 64))
	case seen[lower]:
		return fmt.Errorf("the header %s comes twice", name)
	}
	seen[lower] = true
	return nil
}
