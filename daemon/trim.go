package daemon

import (
	"runtime/debug"
	"runtime/metrics"

	"go.uber.org/zap"
)

// minSpare is how much memory beyond what is in use is left alone.
const minSpare = 32 << 20

// trim gives memory back that a burst took, such as the first start of very many
// tasks: a daemon with nothing to do collects so seldom that it would keep it. It is
// asked now and then, does nothing while runs are under way, and costs one
// collection where it does something.
func (d *Daemon) trim() {
	if len(d.workers.Active()) > 0 {
		return
	}
	live, spare := heap()
	if spare < max(minSpare, live/4) {
		return
	}
	debug.FreeOSMemory()
	d.log.Debug("memory given back", zap.Uint64("live_bytes", live), zap.Uint64("spare_bytes", spare))
}

// heap is what the last collection found in use, and what is held beyond that.
func heap() (live, spare uint64) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	var sizes [4]uint64
	for i, s := range samples {
		if s.Value.Kind() != metrics.KindUint64 {
			return 0, 0 // this runtime does not say
		}
		sizes[i] = s.Value.Uint64()
	}
	held := sizes[1] + sizes[2] + sizes[3]
	return sizes[0], held - min(held, sizes[0])
}
