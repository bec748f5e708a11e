package task

import "testing"

func TestNearest(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{"shedule", "schedule"}, {"SCHEDULE", "schedule"}, {"shcedule", "schedule"}, {"tol", "tool"}, {"x", ""}, {"xyz", ""}, {"schedulerings", ""}, {"", ""},
	} {
		if got := Nearest(c.got, []string{"timezone", "tool", "schedule"}); got != c.want {
			t.Errorf("%q: %q, want %q", c.got, got, c.want)
		}
	}
}
