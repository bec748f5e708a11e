package builtin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxLines is the most lines that one read_file answers, maxText the most
	// bytes.
	maxLines = 5000
	maxText  = 256 << 10
	// maxShown is the most entries that list_directory shows of at most
	// maxEntries that it reads.
	maxShown   = 1000
	maxEntries = 10000
	// sniff is how much of a file is looked at to tell text from binary.
	sniff = 8000
	// fileTime bounds one reading call.
	fileTime = 30 * time.Second
)

type readArgs struct {
	Path   string `json:"path" jsonschema:"file, relative to the root or absolute below it"`
	Offset int    `json:"offset,omitempty" jsonschema:"first line, counted from 1; negative counts from the end, -100 is the last 100 lines"`
	Limit  int    `json:"limit,omitempty" jsonschema:"most lines to answer, 2000 unless given"`
}

func (f *files) readFile(ctx context.Context, in readArgs) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, fileTime)
	defer cancel()
	name, err := f.name(in.Path)
	if err != nil {
		return "", err
	}
	file, info, err := f.openRegular(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	path := f.entry(name)
	touching(ctx).Read = []string{path, path + "#"}
	limit := in.Limit
	if limit <= 0 {
		limit = 2000
	}
	if in.Offset < 0 {
		return f.readEnd(ctx, name, file, info.Size(), min(-in.Offset, limit))
	}
	w := window{skip: max(in.Offset-1, 0), limit: min(limit, maxLines)}
	if err := w.read(ctx, file); err != nil {
		return "", f.fail(name, err)
	}
	if w.lines == 0 && w.skip > 0 {
		return "", fmt.Errorf("%s: has %d lines; offset %d is behind the end", name, w.passed, in.Offset)
	}
	return w.text() + w.note(info.Size()), nil
}

// readEnd answers the last lines of a file.
func (f *files) readEnd(ctx context.Context, name string, file *os.File, size int64, lines int) (string, error) {
	start, err := lastLines(file, size, lines)
	if err != nil {
		return "", f.fail(name, err)
	}
	w := window{limit: maxLines}
	if err := w.read(ctx, io.NewSectionReader(file, start, size-start)); err != nil {
		return "", f.fail(name, err)
	}
	text := w.text()
	if start > 0 {
		text += fmt.Sprintf("\n[last %d lines of a file of %d bytes]", w.lines, size)
	}
	return text, nil
}

// lastLines finds where the last n lines begin, looking at no more than maxText
// bytes: of a file with longer lines fewer are answered.
func lastLines(r io.ReaderAt, size int64, n int) (int64, error) {
	from := max(size-maxText, 0)
	buf := make([]byte, size-from)
	if read, err := r.ReadAt(buf, from); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	} else {
		buf = buf[:read]
	}
	at := len(bytes.TrimSuffix(buf, []byte("\n")))
	for range n {
		at = bytes.LastIndexByte(buf[:at], '\n')
		if at < 0 {
			break
		}
	}
	if at >= 0 {
		return from + int64(at) + 1, nil
	}
	if from == 0 {
		return 0, nil
	}
	// The first line in sight is cut; leave it out unless it is all there is.
	return from + int64(bytes.IndexByte(buf[:max(len(buf)-1, 0)], '\n')) + 1, nil
}

// window reads limit lines after the first skip ones, up to maxText bytes.
type window struct {
	skip, limit int

	passed int // lines gone by, answered ones included
	lines  int // lines answered
	more   bool
	cut    bool // inside a line
	buf    bytes.Buffer
}

var errBinary = errors.New("is binary, not text")

func (w *window) read(ctx context.Context, src io.Reader) error {
	r := bufio.NewReaderSize(src, 64<<10)
	if head, _ := r.Peek(sniff); bytes.IndexByte(head, 0) >= 0 {
		return errBinary
	}
	inLine := false
	for n := 0; ; n++ {
		if n%256 == 0 && ctx.Err() != nil {
			return fmt.Errorf("reading took longer than %s; give a smaller offset", fileTime)
		}
		part, err := r.ReadSlice('\n')
		ends := err == nil || (errors.Is(err, io.EOF) && (len(part) > 0 || inLine))
		if len(part) > 0 && w.take(part) {
			return nil
		}
		inLine = errors.Is(err, bufio.ErrBufferFull)
		if ends {
			w.passed++
			if w.passed > w.skip {
				w.lines++
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !inLine {
			return err
		}
	}
}

// take adds a piece of a line; it tells whether the window is full.
func (w *window) take(part []byte) bool {
	if w.passed < w.skip {
		return false
	}
	if w.lines >= w.limit {
		w.more = true
		return true
	}
	if w.buf.Len()+len(part) <= maxText {
		w.buf.Write(part)
		return false
	}
	w.more = true
	if w.lines == 0 { // one line longer than all we may answer
		w.buf.Write(part[:maxText-w.buf.Len()])
		w.cut, w.lines = true, 1
		return true
	}
	// Leave the started line out, so that the next offset finds it whole.
	if i := bytes.LastIndexByte(w.buf.Bytes(), '\n'); i >= 0 {
		w.buf.Truncate(i + 1)
	}
	return true
}

func (w *window) text() string { return strings.ToValidUTF8(w.buf.String(), "\uFFFD") }

func (w *window) note(size int64) string {
	if !w.more {
		return ""
	}
	next := w.skip + w.lines + 1
	s := fmt.Sprintf("\n[lines %d-%d of a file of %d bytes; go on with offset %d]", w.skip+1, next-1, size, next)
	if w.cut {
		s = fmt.Sprintf("\n[line %d is longer than %d bytes and was cut; the file has %d bytes]", next-1, maxText, size)
	}
	return s
}

type dirArgs struct {
	Path string `json:"path,omitempty" jsonschema:"directory, relative to the root or absolute below it; the root unless given"`
}

func (f *files) listDirectory(ctx context.Context, in dirArgs) (string, error) {
	if in.Path == "" {
		in.Path = "."
	}
	name, err := f.name(in.Path)
	if err != nil {
		return "", err
	}
	entries, more, err := f.entries(name)
	if err != nil {
		return "", err
	}
	if len(entries) == 0 {
		return "[empty directory]", nil
	}
	var b strings.Builder
	dir, t := f.entry(name), touching(ctx)
	for i, e := range entries {
		if i == maxShown {
			more = true
			break
		}
		writeEntry(&b, e)
		t.Read = append(t.Read, filepath.Join(dir, e.Name()))
	}
	if more {
		fmt.Fprintf(&b, "[only %d entries are shown; there are more]\n", min(len(entries), maxShown))
	}
	return b.String(), nil
}

// entries reads a directory, sorted by name. more says that it holds more than
// maxEntries.
func (f *files) entries(name string) (list []fs.DirEntry, more bool, err error) {
	dir, err := f.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, false, f.fail(name, err)
	}
	defer dir.Close()
	if info, err := dir.Stat(); err == nil && !info.IsDir() {
		return nil, false, fmt.Errorf("%s: is a %s, not a directory", name, kind(info.Mode()))
	}
	list, err = dir.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, f.fail(name, err)
	}
	if len(list) > maxEntries {
		list, more = list[:maxEntries], true
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, more, nil
}

func writeEntry(b *strings.Builder, e fs.DirEntry) {
	name := printable(e.Name())
	info, err := e.Info()
	if err != nil { // gone since it was listed
		return
	}
	size := "-"
	if info.Mode().IsRegular() {
		size = fmt.Sprint(info.Size())
	}
	if info.IsDir() {
		name += "/"
	}
	fmt.Fprintf(b, "%-12s %12s  %s  %s\n", kind(info.Mode()), size, stamp(info.ModTime()), name)
}

type pathArgs struct {
	Path string `json:"path" jsonschema:"path, relative to the root or absolute below it"`
}

func (f *files) statFile(ctx context.Context, in pathArgs) (string, error) {
	name, err := f.name(in.Path)
	if err != nil {
		return "", err
	}
	info, err := f.root.Lstat(name)
	if err != nil {
		return "", f.fail(name, err)
	}
	touching(ctx).Read = []string{f.link(name), f.entry(name)}
	text := fmt.Sprintf("path: %s\nkind: %s\nsize: %d\nmode: %s\nmodified: %s\n",
		printable(name), kind(info.Mode()), info.Size(), info.Mode(), stamp(info.ModTime()))
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err := f.root.Readlink(name); err == nil {
			text += "target: " + printable(target) + "\n"
		}
	}
	return text, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// printable quotes a name that would break its line.
func printable(name string) string {
	if q := fmt.Sprintf("%q", name); q[1:len(q)-1] != name && strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return q
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}
