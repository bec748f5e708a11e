package main

import (
	"errors"
	"fmt"
)

// stack is what has to be given back, named, last opened first.
type stack []struct {
	name  string
	close func() error
}

func (s *stack) push(name string, close func() error) {
	*s = append(*s, struct {
		name  string
		close func() error
	}{name, close})
}

// close gives everything back, whatever goes wrong on the way. Calling it again
// does nothing.
func (s *stack) close() error {
	var errs []error
	for i := len(*s) - 1; i >= 0; i-- {
		if err := (*s)[i].close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", (*s)[i].name, err))
		}
	}
	*s = nil
	return errors.Join(errs...)
}
