package builtin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"time"
)

const (
	maxHits = 1000
	// maxVisited, maxScanned and searchTime bound one search: entries looked at,
	// bytes read, wall time.
	maxVisited = 100_000
	maxScanned = 256 << 20
	searchTime = 20 * time.Second
	// maxDepth is the deepest directory that a search enters.
	maxDepth = 64
	// maxHitText is how much of a matching line is shown.
	maxHitText = 300
)

type searchArgs struct {
	Path    string `json:"path,omitempty" jsonschema:"directory to search below; the root unless given"`
	Glob    string `json:"glob,omitempty" jsonschema:"name pattern: * ? [a-z] within a name, ** over directories; without a slash it is matched against the name alone"`
	Content string `json:"content,omitempty" jsonschema:"regular expression (RE2) that a line must match; put (?i) in front to ignore case"`
	Limit   int    `json:"limit,omitempty" jsonschema:"most results, 100 unless given"`
}

// search is one search under way.
type search struct {
	files   *files
	ctx     context.Context
	glob    *glob
	content *regexp.Regexp
	limit   int

	visited int
	scanned int64
	hits    []string
	read    []string // entries that hits are of
	stopped string   // why before the end
}

func (f *files) searchFiles(ctx context.Context, in searchArgs) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	s := &search{files: f, ctx: ctx, limit: in.Limit}
	if s.limit <= 0 {
		s.limit = 100
	}
	if in.Path == "" {
		in.Path = "."
	}
	if in.Glob == "" && in.Content == "" {
		return "", errors.New("give glob, content or both")
	}
	dir, err := f.name(in.Path)
	if err == nil && in.Glob != "" {
		s.glob, err = parseGlob(in.Glob)
	}
	if err == nil && in.Content != "" {
		s.content, err = parsePattern(in.Content)
	}
	if err != nil {
		return "", err
	}
	if _, _, err := f.entries(dir); err != nil {
		return "", err
	}
	s.walk(dir, "", 0)
	touching(ctx).Read = s.read
	return s.answer(), nil
}

func parsePattern(expr string) (*regexp.Regexp, error) {
	if len(expr) > 1000 {
		return nil, fmt.Errorf("content: pattern has %d characters; at most 1000", len(expr))
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	return re, nil
}

// walk visits a directory in order of names; rel is its path from where the
// search began. A directory that cannot be read is passed over.
func (s *search) walk(dir, rel string, depth int) {
	entries, more, err := s.files.entries(dir)
	if err != nil {
		return
	}
	if more {
		s.stop(fmt.Sprintf("%s holds more than %d entries", dir, maxEntries))
	}
	for _, e := range entries {
		if s.full() {
			return
		}
		s.visited++
		name, below := path.Join(dir, e.Name()), path.Join(rel, e.Name())
		switch {
		case e.IsDir() && depth < maxDepth:
			s.walk(name, below, depth+1)
		case e.Type().IsRegular() && (s.glob == nil || s.glob.match(below)):
			s.visit(name)
		}
	}
}

func (s *search) full() bool {
	switch {
	case len(s.hits) >= s.limit:
		s.stop(fmt.Sprintf("the limit of %d results is reached", s.limit))
	case s.visited >= maxVisited:
		s.stop(fmt.Sprintf("%d entries were looked at", maxVisited))
	case s.scanned >= maxScanned:
		s.stop(fmt.Sprintf("%d bytes were read", int64(maxScanned)))
	case s.ctx.Err() != nil:
		s.stop(fmt.Sprintf("it took longer than %s", searchTime))
	default:
		return false
	}
	return true
}

func (s *search) stop(why string) {
	if s.stopped == "" {
		s.stopped = why
	}
}

// visit adds a file, or its matching lines.
func (s *search) visit(name string) {
	if s.content == nil {
		s.hits = append(s.hits, printable(name))
		s.read = append(s.read, s.files.entry(name))
		return
	}
	file, _, err := s.files.openRegular(name)
	if err != nil {
		return
	}
	defer file.Close()
	r := bufio.NewReaderSize(file, 64<<10)
	if head, _ := r.Peek(sniff); bytes.IndexByte(head, 0) >= 0 {
		return
	}
	before := len(s.hits)
	defer func() {
		if entry := s.files.entry(name); len(s.hits) > before {
			s.read = append(s.read, entry, entry+"#")
		}
	}()
	for line := 1; !s.full(); {
		// A line longer than the buffer is looked at in pieces.
		part, err := r.ReadSlice('\n')
		s.scanned += int64(len(part))
		if len(part) > 0 && s.content.Match(bytes.TrimRight(part, "\r\n")) {
			s.hits = append(s.hits, fmt.Sprintf("%s:%d: %s", printable(name), line, shown(part)))
		}
		if err == nil {
			line++
		}
		if errors.Is(err, io.EOF) || (err != nil && !errors.Is(err, bufio.ErrBufferFull)) {
			return
		}
	}
}

// shown is a matching line as it is answered.
func shown(line []byte) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(line), "\uFFFD"))
	if runes := []rune(text); len(runes) > maxHitText {
		return string(runes[:maxHitText]) + " …"
	}
	return text
}

func (s *search) answer() string {
	var b strings.Builder
	for _, h := range s.hits {
		b.WriteString(h + "\n")
	}
	if len(s.hits) == 0 {
		b.WriteString("[nothing found]\n")
	}
	if s.stopped != "" {
		fmt.Fprintf(&b, "[the search is not complete: %s]\n", s.stopped)
	}
	return b.String()
}

// glob is a name pattern with ** over directories.
type glob struct{ parts []string }

func parseGlob(pattern string) (*glob, error) {
	if len(pattern) > 500 {
		return nil, fmt.Errorf("glob: pattern has %d characters; at most 500", len(pattern))
	}
	if !strings.Contains(pattern, "/") {
		pattern = "**/" + pattern
	}
	parts := strings.Split(strings.TrimPrefix(pattern, "/"), "/")
	for _, p := range parts {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("glob: %q has a bracket or backslash without its other half", p)
		}
	}
	return &glob{parts: parts}, nil
}

// match runs all ways through the pattern at once, so that its cost is the
// product of the two lengths whatever the pattern is.
func (g *glob) match(name string) bool {
	at := make([]bool, len(g.parts)+1)
	at[0] = true
	g.skipStars(at)
	for _, part := range strings.Split(name, "/") {
		next := make([]bool, len(at))
		for i, p := range g.parts {
			if !at[i] {
				continue
			}
			if p == "**" {
				next[i] = true
			} else if ok, _ := path.Match(p, part); ok {
				next[i+1] = true
			}
		}
		at = next
		g.skipStars(at)
	}
	return at[len(g.parts)]
}

// skipStars lets ** stand for no directory at all.
func (g *glob) skipStars(at []bool) {
	for i, p := range g.parts {
		if at[i] && p == "**" {
			at[i+1] = true
		}
	}
}
