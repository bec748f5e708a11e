package storetest

import (
	"testing"

	"runnerd/scheduler"
)

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) scheduler.Store { return &Memory{} })
}
