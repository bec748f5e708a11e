package daemon

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"runnerd/config"
	"runnerd/db"
	"runnerd/policy"
	"runnerd/scheduler"
	"runnerd/task"
	"runnerd/taskpolicy"
)

// Freshen implements agentloop.Files: whatever changed on disk is in force when
// it returns, or an error says that the last good revision still is.
func (d *Daemon) Freshen(ctx context.Context, taskID string) error {
	_, _, err := d.loader.Freshen(ctx, taskID)
	return errors.Join(err, d.putNewest(ctx))
}

// Lost implements agentloop.Files.
func (d *Daemon) Lost() map[string]string {
	if set := d.applied.Load(); set != nil {
		return set.LostConnectors()
	}
	return nil
}

// Stale implements agentloop.Files.
func (d *Daemon) Stale(taskID string) []string {
	set := d.applied.Load()
	if set == nil {
		return nil
	}
	var files []string
	for _, f := range set.Kept {
		if id := taskOf(f); id == "" || id == taskID {
			files = append(files, f)
		}
	}
	return files
}

// reload reads all files again and puts what is good into force.
func (d *Daemon) Reload(ctx context.Context) error { return d.reloadBy(ctx, d.loader.Load) }

func (d *Daemon) reloadBy(ctx context.Context, load func(context.Context) (*config.Set, error)) error {
	if _, err := load(ctx); err != nil {
		return err
	}
	return d.putNewest(ctx)
}

// stored are the files that were in force last, unless those were of another config
// directory: a name mistyped is no volume that is not mounted.
func (d *Daemon) stored() func() map[string][]byte {
	if was := d.partners.lock.Memory().Config; was != "" && was != d.options.ConfigDir {
		return nil
	}
	return storedFiles(d.main, d.log)
}

// storedFiles reads the files that were in force last.
func storedFiles(main *db.DB, log *zap.Logger) func() map[string][]byte {
	return func() map[string][]byte {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		files, err := main.Files(ctx)
		if err != nil {
			log.Error("files that were in force last not read", zap.Error(err))
		}
		return files
	}
}

// putNewest makes the set that was loaded last, by whomever, the one in force:
// what can fail first (both databases), then the parts that only swap a pointer.
func (d *Daemon) putNewest(ctx context.Context) error {
	if d.loader.Current() == d.applied.Load() {
		return nil
	}
	d.apply.Lock()
	defer d.apply.Unlock()
	set := d.loader.Current()
	if set == d.applied.Load() {
		return nil // another caller put it there
	}
	wrong := faults(set, d.secrets) // resolving makes secrets known before anything could show them
	entries, err := d.store(ctx, set)
	if err != nil {
		select {
		case d.behind <- struct{}{}:
		default:
		}
		return fmt.Errorf("put files into force: %w", err)
	}
	d.models.set(set.Models)
	d.pool.Set(connectorSpecs(set))
	err = d.clock.Set(entries)
	d.faulty.Store(&wrong)
	d.applied.Store(set)
	d.care.see(set, wrong)
	d.away(set.Away)
	if set.Away == nil {
		err = errors.Join(err, d.partners.lock.RememberConfig(d.options.ConfigDir))
	}
	d.admit(set.Daemon.Access)
	d.tell(set, wrong)
	if len(set.Tasks) >= many {
		debug.FreeOSMemory() // a load takes several times what is then kept
	}
	return err
}

// lookAgain finds what is wrong beside the files of the set in force, which may have
// changed although none of them has: scripts, credentials, directories.
func (d *Daemon) lookAgain() {
	d.apply.Lock()
	defer d.apply.Unlock()
	if set := d.applied.Load(); set != nil {
		wrong := faults(set, d.secrets)
		d.faulty.Store(&wrong)
		d.care.see(set, wrong)
	}
}

// many is from how many tasks on what a load leaves behind is given back at once:
// an idle daemon collects little, and so would keep it.
const many = 1000

// store writes a set to the databases, both at once, and answers what the clock
// needs of it. Where one fails, the set is not in force and is written again.
func (d *Daemon) store(ctx context.Context, set *config.Set) ([]scheduler.Entry, error) {
	tasks := make([]task.Task, 0, len(set.Tasks))
	schedules := map[string]task.Schedule{}
	for _, id := range set.TaskIDs() {
		t := set.Tasks[id].Task
		tasks = append(tasks, t)
		if len(t.Schedule.Specs) > 0 {
			schedules[scheduler.Revision(t.Schedule)] = t.Schedule
		}
	}
	var revisions []string
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		if revisions, err = d.main.SaveRevisions(ctx, tasks); err == nil {
			err = d.main.SaveSchedules(ctx, schedules)
		}
		if err == nil {
			err = d.main.SaveFiles(ctx, d.edited(set))
		}
		if err == nil {
			err = d.main.ForgetFiles(ctx, d.forgotten(set))
		}
		return d.ofMain(err)
	})
	both.Go(func() error {
		return d.ofRules(d.rules.SyncFiles(ctx, policyRows(set), set.Daemon.Policy(), "files"))
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}
	entries := make([]scheduler.Entry, len(tasks))
	for i, t := range tasks {
		entries[i] = scheduler.Entry{Task: t, Revision: revisions[i]}
	}
	return entries, nil
}

// forgotten tells which files are not in force any more; nil where none can have
// gone since the last set.
func (d *Daemon) forgotten(set *config.Set) func(file string) bool {
	in := make(map[string]bool, len(set.Accepted)+len(set.Kept))
	for file := range set.Accepted {
		in[file] = true
	}
	for _, file := range set.Kept {
		in[file] = true
	}
	before := d.applied.Load()
	gone := before == nil
	if before != nil {
		for file := range before.Accepted {
			gone = gone || !in[file]
		}
		gone = gone || len(before.Kept) > 0
	}
	if !gone {
		return nil
	}
	return func(file string) bool { return !in[file] }
}

// edited are the contents of the accepted files that are not in force as they are.
func (d *Daemon) edited(set *config.Set) map[string][]byte {
	contents := map[string][]byte{}
	before := d.applied.Load()
	for file, r := range set.Accepted {
		if before == nil || before.Accepted[file].SHA256 != r.SHA256 {
			contents[file] = r.Content
		}
	}
	return contents
}

// policyRows is what the files say about tasks, projects and connectors.
func policyRows(set *config.Set) []taskpolicy.Row {
	rows := make([]taskpolicy.Row, 0, len(set.Tasks)+len(set.Projects)+len(set.Connectors))
	for _, id := range set.TaskIDs() {
		rows = append(rows, taskpolicy.Row{Scope: policy.ScopeTask, ID: id, Fields: set.Tasks[id].Policy})
	}
	for _, id := range set.ProjectIDs() {
		rows = append(rows, taskpolicy.Row{Scope: policy.ScopeProject, ID: id, Fields: set.Projects[id].Policy})
	}
	for _, id := range set.ConnectorIDs() {
		rows = append(rows, taskpolicy.Row{Scope: policy.ScopeConnector, ID: id, Fields: set.Connectors[id].Policy})
	}
	return rows
}

func connectorSpecs(set *config.Set) []task.Connector {
	specs := make([]task.Connector, 0, len(set.Connectors))
	for _, id := range set.ConnectorIDs() {
		specs = append(specs, set.Connectors[id].Connector)
	}
	return specs
}

// tell logs what is wrong with the files that were just read, once a load.
func (d *Daemon) tell(set *config.Set, wrong []config.Problem) {
	for _, p := range set.Problems {
		d.log.Error("file refused", zap.String("file", p.File), zap.String("detail", p.Error()))
	}
	for _, p := range wrong {
		d.log.Error("file cannot do what it says", zap.String("file", p.File), zap.String("detail", p.Error()))
	}
	for _, p := range set.Warnings {
		d.log.Warn("file", zap.String("file", p.File), zap.String("detail", p.Error()))
	}
	for _, f := range set.Kept {
		d.log.Warn("last good revision stays in force", zap.String("file", f))
	}
	d.log.Info("files in force", zap.Int("tasks", len(set.Tasks)), zap.Int("connectors", len(set.Connectors)), zap.Int("problems", len(set.Problems)+len(wrong)))
}

// resolvePath resolves a path argument of a connector's call against its root.
func (d *Daemon) resolvePath(id, path string) (string, error) {
	set := d.applied.Load()
	if set == nil {
		return "", fmt.Errorf("resolve path: no files are in force")
	}
	return pathOf(set, d.secrets, id, path)
}

func (d *Daemon) oldSchedule(revision string) (task.Schedule, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s, ok, err := d.main.OldSchedule(ctx, revision)
	if err != nil {
		d.log.Error("old schedule unreadable", zap.String("revision", revision), zap.Error(err))
	}
	return s, ok
}
func (d *Daemon) lastGood(file string) ([]byte, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	content, err := d.main.LastGood(ctx, file)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		d.log.Error("last good revision unreadable", zap.String("file", file), zap.Error(err))
	}
	return content, err == nil
}
