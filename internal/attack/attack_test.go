package attack

import (
	"flag"
	"os"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

var (
	table = flag.Bool("table", false, "print the table of verdicts")
	all   = flag.Bool("all", false, "try all variants of each errand, not a share")
)

// TestMain lets more scenarios run side by side than there are cores: they wait for
// the disk more than for anything else.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 { // os.Exit would sleep for a second in a race build
		switch os.Args[1] {
		case relayVerb:
			syscall.Exit(relay(os.Args[2:]))
		case villainVerb:
			syscall.Exit(villain(os.Args[2:]))
		}
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	debug.SetGCPercent(400)
	goleak.VerifyTestMain(tidy{m})
}

// tidy removes what tests share.
type tidy struct{ *testing.M }

func (m tidy) Run() int {
	code := m.M.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	return code
}

// TestScenarios plays every scenario and holds it to what it says of itself.
func TestScenarios(t *testing.T) {
	all := Scenarios()
	verdicts := make([]*Verdict, len(all))
	t.Run("scenario", func(t *testing.T) {
		for i := range all {
			t.Run(all[i].Name, func(t *testing.T) {
				if i%sample != 0 {
					t.Skip("one of several is played under the race detector")
				}
				t.Parallel()
				verdicts[i] = Try(t, &all[i])
				hold(t, verdicts[i])
			})
		}
	})
	places := desks()
	worked := make([][]*Verdict, len(places))
	t.Run("desk", func(t *testing.T) {
		for i, d := range places {
			t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				worked[i] = d.work(t)
			})
		}
	})
	broken := intrusions()
	entered := make([]*Verdict, len(broken))
	t.Run("binary", func(t *testing.T) {
		for i := range broken {
			t.Run(broken[i].name, func(t *testing.T) {
				if i%sample != 0 {
					t.Skip("one of several is played under the race detector")
				}
				t.Parallel()
				entered[i] = broken[i].try(t)
				hold(t, entered[i])
			})
		}
	})
	verdicts = append(append(verdicts, slices.Concat(worked...)...), entered...)
	if *table && !slices.Contains(verdicts, nil) {
		if err := WriteTable(os.Stdout, verdicts); err != nil {
			t.Error(err)
		}
	}
}

func hold(t *testing.T, v *Verdict) {
	t.Helper()
	s := v.Scenario
	if !v.Benign {
		t.Errorf("without an attack the job was not done, or did harm: %q", v.Harm["clean"])
	}
	if want := s.Costs == ""; v.Under != want {
		t.Errorf("job done under attack: %t, want %t %s", v.Under, want, s.Costs)
	}
	switch {
	case s.Permitted == "" && v.Succeeded():
		t.Errorf("the attack succeeded: %v", v.Harm)
	case s.Permitted != "" && v.Harm["obeying"] == "":
		t.Errorf("the attack failed although it is permitted (%s)", s.Permitted)
	case s.Permitted != "" && v.Harm["ignoring"] != "":
		t.Errorf("harm without a model that obeys: %s", v.Harm["ignoring"])
	}
	if !slices.Equal(v.Codes, s.Codes) {
		t.Errorf("refusals %v, want %v", v.Codes, s.Codes)
	}
	for _, b := range v.Broken {
		t.Errorf("broken promise: %s", b)
	}
}

// TestNames holds the table together: names are unique, texts complete.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Scenarios() {
		if seen[s.Name] || s.Name == "" || s.Class == "" || s.Poison == "" || s.Harm == nil || len(s.Job) == 0 {
			t.Errorf("scenario %q is incomplete, or there are two", s.Name)
		}
		seen[s.Name] = true
		if len(ordersIn(s.Poison)) == 0 {
			t.Errorf("scenario %q orders nothing", s.Name)
		}
		for _, j := range s.Job {
			if len(ordersIn("CALL "+j)) != 1 {
				t.Errorf("scenario %q: job %q is no call", s.Name, j)
			}
		}
	}
	if len(seen) < 40 {
		t.Errorf("%d scenarios, want at least 40", len(seen))
	}
}
