package builtin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"
)

const (
	maxKey     = 200      // bytes of a key
	maxNote    = 32 << 10 // bytes of a text
	maxNotes   = 10_000   // of one file
	maxFile    = 32 << 20 // bytes of the file
	maxRecall  = 64 << 10 // bytes of one answer
	lockWait   = 5 * time.Second
	lockRetry  = 20 * time.Millisecond
	shownNotes = 20
)

// note is one line of the file.
type note struct {
	Key  string    `json:"key"`
	Text string    `json:"text"`
	Tags []string  `json:"tags,omitempty"`
	At   time.Time `json:"at"`
}

// memory keeps notes in one JSON lines file, oldest first. Each change rewrites
// the file beside itself and renames it over, under a lock that other processes
// honour too.
type memory struct{ file string }

func openMemory(s *mcp.Server, args []string) (func() error, error) {
	m := &memory{}
	err := parseFlags(args, func(f *flag.FlagSet) { f.StringVar(&m.file, "file", "", "JSON lines file") })
	if err != nil {
		return nil, err
	}
	if m.file == "" {
		// The one place of the project that asks for HOME: a connector's home is
		// the folder that it was given (DESIGN, section 12).
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, errors.New("no home directory is set; give --file")
		}
		m.file = filepath.Join(home, "memory.jsonl")
	}
	if m.file, err = filepath.Abs(m.file); err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(m.file)); err == nil {
		m.file = filepath.Join(dir, filepath.Base(m.file)) // as its entries are known
	}
	if info, err := os.Stat(filepath.Dir(m.file)); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("memory file %s: its directory does not exist", m.file)
	}
	return func() error { return nil }, m.register(s)
}

func (m *memory) register(s *mcp.Server) error {
	return errors.Join(
		addTool(s, &mcp.Tool{Name: "remember", Annotations: writes(true, true),
			Description: "Keep a note under a key, for later runs. A note of the same key is replaced."},
			m.remember),
		addTool(s, &mcp.Tool{Name: "recall", Annotations: reads(false),
			Description: "Read the note of a key, or without a key the newest notes."},
			m.recall, between("limit", 1, maxNotes)),
		addTool(s, &mcp.Tool{Name: "search", Annotations: reads(false),
			Description: "Find notes that hold all the given words in key, text or tags; upper and lower case are alike."},
			m.search, between("limit", 1, maxNotes)),
		addTool(s, &mcp.Tool{Name: "forget", Annotations: writes(true, true),
			Description: "Remove the note of a key."},
			m.forget),
	)
}

type rememberArgs struct {
	Key  string   `json:"key" jsonschema:"short name of the note"`
	Text string   `json:"text" jsonschema:"what to remember"`
	Tags []string `json:"tags,omitempty" jsonschema:"words to find it by"`
}

func (m *memory) remember(ctx context.Context, in rememberArgs) (string, error) {
	n := note{Key: strings.TrimSpace(in.Key), Text: in.Text, Tags: in.Tags, At: time.Now().UTC()}
	if err := n.check(); err != nil {
		return "", err
	}
	verb := "remembered"
	err := m.change(ctx, func(notes []note) ([]note, error) {
		if i := find(notes, n.Key); i >= 0 {
			notes, verb = slices.Delete(notes, i, i+1), "replaced"
		}
		if len(notes) >= maxNotes {
			return nil, fmt.Errorf("there are %d notes already, which is the most; forget some first", len(notes))
		}
		return append(notes, n), nil
	})
	if err != nil {
		return "", err
	}
	t := touching(ctx)
	t.Wrote, t.Added = []string{m.entry(n.Key)}, []string{m.entry("")}
	return fmt.Sprintf("%s %q", verb, n.Key), nil
}

func (n note) check() error {
	tags := 0
	for _, t := range n.Tags {
		tags += len(t)
	}
	switch {
	case n.Key == "":
		return errors.New("key is empty")
	case len(n.Key) > maxKey:
		return fmt.Errorf("key has %d bytes; at most %d", len(n.Key), maxKey)
	case strings.TrimSpace(n.Text) == "":
		return errors.New("text is empty; use forget to remove a note")
	case len(n.Text) > maxNote || tags > maxNote:
		return fmt.Errorf("text has %d bytes and the tags %d; at most %d each", len(n.Text), tags, maxNote)
	}
	return nil
}

type recallArgs struct {
	Key   string `json:"key,omitempty" jsonschema:"the note's key; without it the newest notes are answered"`
	Limit int    `json:"limit,omitempty" jsonschema:"most notes to answer without a key, 20 unless given"`
}

func (m *memory) recall(ctx context.Context, in recallArgs) (string, error) {
	notes, err := m.read(ctx)
	if err != nil {
		return "", err
	}
	if key := strings.TrimSpace(in.Key); key != "" {
		i := find(notes, key)
		if i < 0 {
			return "", fmt.Errorf("nothing is remembered under %q; search may find it under another key", key)
		}
		touching(ctx).Read = m.readEntries(notes[i : i+1])
		return shownNote(notes[i]), nil
	}
	return m.newest(ctx, notes, in.Limit), nil
}

type findArgs struct {
	Query string `json:"query" jsonschema:"words that a note must hold, all of them"`
	Limit int    `json:"limit,omitempty" jsonschema:"most notes to answer, 20 unless given"`
}

func (m *memory) search(ctx context.Context, in findArgs) (string, error) {
	words := strings.Fields(strings.ToLower(in.Query))
	if len(words) == 0 || len(in.Query) > 1000 {
		return "", errors.New("query: give one or more words, 1000 bytes at most")
	}
	notes, err := m.read(ctx)
	if err != nil {
		return "", err
	}
	return m.newest(ctx, slices.DeleteFunc(notes, func(n note) bool {
		all := strings.ToLower(n.Key + "\n" + n.Text + "\n" + strings.Join(n.Tags, "\n"))
		return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all, w) })
	}), in.Limit), nil
}

type forgetArgs struct {
	Key string `json:"key" jsonschema:"the note's key"`
}

func (m *memory) forget(ctx context.Context, in forgetArgs) (string, error) {
	key := strings.TrimSpace(in.Key)
	err := m.change(ctx, func(notes []note) ([]note, error) {
		i := find(notes, key)
		if i < 0 {
			return nil, fmt.Errorf("nothing is remembered under %q", key)
		}
		return slices.Delete(notes, i, i+1), nil
	})
	if err != nil {
		return "", err
	}
	touching(ctx).Gone = []string{m.entry(key)}
	return fmt.Sprintf("forgot %q", key), nil
}

func find(notes []note, key string) int {
	return slices.IndexFunc(notes, func(n note) bool { return n.Key == key })
}

// newest answers notes from the newest on, within limit and maxRecall.
func (m *memory) newest(ctx context.Context, notes []note, limit int) string {
	if limit <= 0 {
		limit = shownNotes
	}
	if len(notes) == 0 {
		return "[no notes]"
	}
	var b strings.Builder
	shown := 0
	for _, n := range slices.Backward(notes) {
		text := shownNote(n)
		if shown == limit || b.Len()+len(text) > maxRecall {
			fmt.Fprintf(&b, "[%d older notes are not shown]\n", len(notes)-shown)
			break
		}
		b.WriteString(text)
		shown++
	}
	touching(ctx).Read = m.readEntries(notes[len(notes)-shown:])
	return b.String()
}

func shownNote(n note) string {
	s := fmt.Sprintf("key: %s\nat: %s\n", n.Key, stamp(n.At))
	if len(n.Tags) > 0 {
		s += "tags: " + strings.Join(n.Tags, ", ") + "\n"
	}
	return s + n.Text + "\n\n"
}

func (m *memory) read(ctx context.Context) (notes []note, err error) {
	err = m.locked(ctx, unix.LOCK_SH, func() error {
		notes, err = m.load()
		return err
	})
	return notes, err
}

// change loads, edits and stores the notes under the lock. An error of edit
// leaves the file alone.
func (m *memory) change(ctx context.Context, edit func([]note) ([]note, error)) error {
	return m.locked(ctx, unix.LOCK_EX, func() error {
		notes, err := m.load()
		if err != nil {
			return err
		}
		if notes, err = edit(notes); err != nil {
			return err
		}
		return m.store(notes)
	})
}

// locked does something under a lock on FILE.lock; the file itself is replaced
// at each change and cannot carry one.
func (m *memory) locked(ctx context.Context, how int, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	lock, err := os.OpenFile(m.file+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("memory lock: %w", err)
	}
	defer lock.Close() // which unlocks
	for {
		err := unix.Flock(int(lock.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return do()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("memory lock: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("memory is in use by another process for more than %s; try again", lockWait)
		case <-time.After(lockRetry):
		}
	}
}

// load reads all notes. A line that is no note is an error that names it, so
// that a slip of a hand edit is not rewritten away.
func (m *memory) load() ([]note, error) {
	file, err := os.Open(m.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("memory file: %w", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > maxFile {
		return nil, fmt.Errorf("memory file %s has %d bytes; at most %d are read", m.file, info.Size(), maxFile)
	}
	var notes []note
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxFile)
	for i := 1; lines.Scan(); i++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var n note
		if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
			return nil, fmt.Errorf("memory file %s:%d: not a note: %w; mend or remove the line", m.file, i, err)
		}
		if n.Key == "" {
			return nil, fmt.Errorf("memory file %s:%d: not a note: no key; mend or remove the line", m.file, i)
		}
		notes = append(notes, n)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("memory file %s: %w", m.file, err)
	}
	return notes, nil
}

func (m *memory) store(notes []note) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, n := range notes {
		if err := enc.Encode(n); err != nil {
			return fmt.Errorf("memory file: %w", err)
		}
	}
	if b.Len() > maxFile {
		return fmt.Errorf("memory would grow to %d bytes, more than %d; forget some notes first", b.Len(), maxFile)
	}
	dir, err := os.OpenRoot(filepath.Dir(m.file))
	if err != nil {
		return fmt.Errorf("memory file: %w", err)
	}
	defer dir.Close()
	if err := writeWhole(dir, filepath.Base(m.file), []byte(b.String()), 0o600, true); err != nil {
		return fmt.Errorf("memory file: %w", reason(err))
	}
	return nil
}
