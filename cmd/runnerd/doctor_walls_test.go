package main

import (
	"strings"
	"testing"

	"runnerd/procgroup"
)

// doctor says whom the walls are not for.
func TestDoctorSaysWhatIsNotConfined(t *testing.T) {
	got := (&app{}).examineContainment()
	if strings.HasPrefix(procgroup.Containment(), "landlock") && !strings.Contains(got.Detail, "commands of deliver, notify and models are your own and are not") {
		t.Errorf("%+v", got)
	}
}
