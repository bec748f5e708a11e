package daemon

import (
	"errors"
	"fmt"
)

// Stack is what has to be given back, named, last opened first.
type Stack []struct {
	name  string
	close func() error
}

func (s *Stack) Push(name string, close func() error) {
	*s = append(*s, struct {
		name  string
		close func() error
	}{name, close})
}

// Close gives everything back, whatever goes wrong on the way. Calling it again
// does nothing.
func (s *Stack) Close() error {
	var errs []error
	for i := len(*s) - 1; i >= 0; i-- {
		if err := (*s)[i].close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", (*s)[i].name, err))
		}
	}
	*s = nil
	return errors.Join(errs...)
}
