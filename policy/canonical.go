package policy

import (
	"fmt"

	"github.com/gowebpki/jcs"
)

// Canonical is the RFC 8785 form of arguments. It serves only to see that a call
// is made again; what is hashed, approved and sent are the exact bytes. Arguments
// that Decide would refuse as malformed have no canonical form and give an error;
// for those compare the bytes.
func Canonical(arguments string) (string, error) {
	if _, err := parseJSON(arguments); err != nil {
		return "", fmt.Errorf("canonical form: %w", err)
	}
	data, err := jcs.Transform([]byte(arguments))
	if err != nil {
		return "", fmt.Errorf("canonical form: %w", err)
	}
	return string(data), nil
}
