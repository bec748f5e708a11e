package daemon

import (
	"runtime"
	"testing"
)

func TestHeapSeesWhatIsSpare(t *testing.T) {
	const size = 64 << 20
	block := make([]byte, size)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	runtime.GC()
	live, _ := heap()
	if live < size {
		t.Errorf("%d bytes live, want the %d that are held", live, size)
	}
	runtime.KeepAlive(block)
	block = nil
	runtime.GC()
	after, spare := heap()
	if after > live-size/2 || spare < size/2 {
		t.Errorf("%d bytes live and %d spare after %d were let go", after, spare, size)
	}
}
