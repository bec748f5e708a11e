package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"runnerd/db"
	"runnerd/internal/daemontest"
	"runnerd/task"
)

// TestMain registers the program itself, so that scripts run it as a process of
// its own: with its own connectors, signals and exit codes.
func TestMain(m *testing.M) {
	testscript.Main(tidy{m}, map[string]func(){"runnerd": main, "counter": counting, "gated": gated, "hostile": hostile, "forger": forging})
}

// TestScripts runs testdata/*.txtar: the command line as people use it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"approval": newestApproval, "diffhash": hashOfDiff, "waitfor": waitForFile, "lastrun": waitForRun, "trouble": waitForTrouble,
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("DESK", filepath.Join(env.WorkDir, "desk"))
			env.Setenv("RUNNERD_TIMEZONE", "Europe/Berlin")
			env.Setenv("RUNNERD_CONFIG_DIR", filepath.Join(env.WorkDir, "config"))
			env.Setenv("RUNNERD_STATE_DIR", filepath.Join(env.WorkDir, "state"))
			env.Setenv("RUNNERD_CACHE_DIR", filepath.Join(env.WorkDir, "cache")) // a files root may be HOME
			env.Setenv("RUNNERD_CACHE_DIR", filepath.Join(env.WorkDir, "cache"))
			return os.MkdirAll(filepath.Join(env.WorkDir, "home"), 0o755)
		},
	})
}

// eventually asks again until the other process has got there.
func eventually(ts *testscript.TestScript, what string, there func() (bool, error)) {
	var err error
	for deadline := time.Now().Add(daemontest.Patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ok := false
		if ok, err = there(); ok {
			return
		}
	}
	ts.Fatalf("no %s in 20 s (%v)", what, err)
}

func readMain(ts *testscript.TestScript, read func(*db.DB) error) error {
	main, err := db.Open(context.Background(), db.Options{DSN: filepath.Join(ts.Getenv("RUNNERD_STATE_DIR"), "runnerd.db"), ReadOnly: true})
	if err != nil {
		return err
	}
	return errors.Join(read(main), main.Close())
}

// newestApproval sets a variable to the id of the newest pending approval.
func newestApproval(ts *testscript.TestScript, _ bool, args []string) {
	eventually(ts, "pending approval", func() (bool, error) {
		var list []task.Approval
		err := readMain(ts, func(main *db.DB) (err error) {
			list, err = main.Approvals(context.Background(), db.ApprovalFilter{States: []task.ApprovalState{task.ApprovalPending}})
			return err
		})
		if len(list) > 0 {
			ts.Setenv(args[0], list[0].ID)
		}
		return len(list) > 0, err
	})
}

// hashOfDiff sets a variable to the hash that connectors diff printed.
func hashOfDiff(ts *testscript.TestScript, _ bool, args []string) {
	_, after, found := strings.Cut(ts.ReadFile("stdout"), "--hash ")
	if !found {
		ts.Fatalf("no hash was printed")
	}
	ts.Setenv(args[0], strings.TrimSpace(after))
}

func waitForFile(ts *testscript.TestScript, _ bool, args []string) {
	eventually(ts, args[0], func() (bool, error) {
		_, err := os.Stat(ts.MkAbs(args[0]))
		return err == nil, err
	})
}

// waitForTrouble waits until the trouble of a key is open, or with ! is not.
func waitForTrouble(ts *testscript.TestScript, neg bool, args []string) {
	eventually(ts, "change of trouble "+args[0], func() (bool, error) {
		var open bool
		err := readMain(ts, func(main *db.DB) error {
			list, err := main.OpenTroubles(context.Background())
			open = slices.ContainsFunc(list, func(t task.Trouble) bool { return t.Key == args[0] })
			return err
		})
		return open != neg, err
	})
}

// waitForRun waits until the newest run has the status.
func waitForRun(ts *testscript.TestScript, _ bool, args []string) {
	eventually(ts, "run with status "+args[0], func() (bool, error) {
		var runs []task.Run
		err := readMain(ts, func(main *db.DB) (err error) {
			runs, err = main.Runs(context.Background(), db.RunFilter{Limit: 1})
			return err
		})
		return len(runs) > 0 && string(runs[0].Status()) == args[0], err
	})
}
