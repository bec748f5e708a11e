package agentloop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// fitsOutput says why text is not JSON that fits the schema. The schema was
// checked when its file was loaded; it loads nothing from elsewhere.
func fitsOutput(schema json.RawMessage, text string) error {
	const place = "schema:output"
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return fmt.Errorf("read output_schema: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource(place, doc); err != nil {
		return fmt.Errorf("read output_schema: %w", err)
	}
	compiled, err := c.Compile(place)
	if err != nil {
		return fmt.Errorf("read output_schema: %w", err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(unfence(text)))
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	err = compiled.Validate(value)
	var invalid *jsonschema.ValidationError
	if errors.As(err, &invalid) {
		return errors.New(strings.Join(strings.Fields(strings.ReplaceAll(invalid.Error(), place, "output_schema")), " "))
	}
	return err
}
