package agentloop

import (
	"encoding/json"
	"strings"

	"runnerd/policy"
)

// redactArguments replaces known secrets in the arguments of a call and names the
// first. A secret that only shows once escapes are read costs the arguments their
// exact form; the call is refused either way.
func (a *attempt) redactArguments(arguments string) (clean, secret string) {
	if name := a.Redact.Find(arguments); name != "" {
		return a.Redact.Text(arguments), name
	}
	if !strings.Contains(arguments, `\`) {
		return arguments, ""
	}
	var value any
	if json.Unmarshal([]byte(arguments), &value) != nil {
		return arguments, ""
	}
	value = a.redactValue(value, &secret)
	if secret == "" {
		return arguments, ""
	}
	data, err := json.Marshal(value)
	if err != nil {
		return "{}", secret
	}
	return string(data), secret
}

func (a *attempt) redactValue(value any, secret *string) any {
	switch v := value.(type) {
	case string:
		if name := a.Redact.Find(v); name != "" {
			*secret = name
			return a.Redact.Text(v)
		}
	case []any:
		for i := range v {
			v[i] = a.redactValue(v[i], secret)
		}
	case map[string]any:
		for key, item := range v {
			if name := a.Redact.Find(key); name != "" {
				*secret = name
				delete(v, key)
				key = a.Redact.Text(key)
			}
			v[key] = a.redactValue(item, secret)
		}
	}
	return value
}

// canonical is the form in which two calls are compared.
func canonical(arguments string) string {
	if c, err := policy.Canonical(arguments); err == nil {
		return c
	}
	return arguments
}
