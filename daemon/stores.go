package daemon

import (
	"runnerd/agentloop"
	"runnerd/dispatch"
	"runnerd/scheduler"
)

// stores are the main database as each part sees it.
type stores struct {
	clock scheduler.Store
	queue dispatch.Store
	loop  agentloop.Store
	tools agentloop.Connectors
}
