package looptest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"runnerd/db"
	"runnerd/taskpolicy"
)

// Names of the two databases in a world's directory.
const (
	mainFile  = "runnerd.db"
	rulesFile = "task_policies.db"
)

// templates are two empty databases, built once a process: a copy is made faster
// than the migrations run.
type templates struct {
	once  sync.Once
	files map[string][]byte
	err   error
}

var template templates

func (t *templates) copyTo(dir string) error {
	t.once.Do(t.build)
	if t.err != nil {
		return t.err
	}
	for name, data := range t.files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (t *templates) build() {
	dir, err := os.MkdirTemp("", "looptest")
	if err != nil {
		t.err = err
		return
	}
	defer func() { t.err = errors.Join(t.err, os.RemoveAll(dir)) }()
	if t.err = create(dir); t.err != nil {
		return
	}
	t.files = map[string][]byte{}
	for _, name := range []string{mainFile, rulesFile} {
		if t.files[name], t.err = os.ReadFile(filepath.Join(dir, name)); t.err != nil {
			return
		}
	}
}

// create makes both databases; closing the last connection folds the log of each
// into its file.
func create(dir string) error {
	ctx := context.Background()
	main, err := db.Open(ctx, db.Options{DSN: filepath.Join(dir, mainFile)})
	if err != nil {
		return err
	}
	rules, err := taskpolicy.Open(ctx, taskpolicy.Options{DSN: filepath.Join(dir, rulesFile)})
	if err != nil {
		return errors.Join(err, main.Close())
	}
	return errors.Join(rules.Close(), main.Close())
}
