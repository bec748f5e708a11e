package config

import (
	"testing"
	"time"
)

func TestDaemonPing(t *testing.T) {
	d := newDir(t, map[string]string{"runnerd.yaml": "ping: {url: \"https://ping.example.com/${credential:key}\", every: 5m}\n"})
	set := load(t, d.loader())
	if len(set.Problems) > 0 {
		t.Fatal(set.Problems)
	}
	if got := set.Daemon.Ping; got.URL != "https://ping.example.com/${credential:key}" || got.Every != 5*time.Minute {
		t.Errorf("ping %+v", got)
	}
	d.write("runnerd.yaml", "ping: {url: \"https://ping.example.com\", every: 1s}\n")
	if set = load(t, d.loader()); len(set.Problems) != 1 {
		t.Errorf("problems %v, want one about every: 1s", set.Problems)
	}
}
