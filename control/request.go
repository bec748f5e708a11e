package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"runnerd/text"
)

// request is one request as its handler sees it.
type request struct {
	*http.Request
	peer Peer
	w    http.ResponseWriter
}

// by is the peer as the databases record who did something.
func (r *request) by() string { return r.peer.name() }

// id is the {id} of the path.
func (r *request) id() string { return r.PathValue("id") }

// query answers the named parameters; one that is unknown, or given twice, is an
// error that names it.
func (r *request) query(known ...string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("query: %v", err)
	}
	for name, given := range values {
		if !slices.Contains(known, name) {
			return nil, badRequest("query: there is no parameter %q here; there is %s", name, listed(known))
		}
		if len(given) > 1 {
			return nil, badRequest("query: %s is given %d times", name, len(given))
		}
		if !printable(given[0]) {
			return nil, badRequest("query: %s: no name holds %s", name, text.Cut(text.Escape(given[0]), 80))
		}
	}
	return values, nil
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// maxLimit bounds a listing.
const maxLimit = 1000

func limitOf(q url.Values) (int, error) {
	if !q.Has("limit") {
		return 0, nil
	}
	n, err := strconv.Atoi(q.Get("limit"))
	if err != nil || n < 1 || n > maxLimit {
		return 0, badRequest("query: limit: want a number from 1 to %d, have %q", maxLimit, q.Get("limit"))
	}
	return n, nil
}

func timeOf(q url.Values, name string) (time.Time, error) {
	if !q.Has(name) {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, q.Get(name))
	if err != nil {
		return t, badRequest("query: %s: want a time such as 2026-05-04T09:00:00Z, have %q (a + must be written %%2B)", name, q.Get(name))
	}
	return t, nil
}

func seqOf(name, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, badRequest("%s: want the number of an event, have %q", name, text)
	}
	return n, nil
}

// object reads the body as a JSON object with only the known keys, none of them
// twice at any depth. An empty body is an empty object if mayBeEmpty.
func (r *request) object(mayBeEmpty bool, known ...string) (patch, error) {
	data, err := r.body()
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return nil, err
		}
		return nil, badRequest("body: %v", err)
	}
	if mayBeEmpty && len(bytes.TrimSpace(data)) == 0 {
		return patch{}, nil
	}
	return parseObject(data, known)
}

// body reads the body within readTime and maxBody.
func (r *request) body() ([]byte, error) {
	rc := http.NewResponseController(r.w)
	if err := rc.SetReadDeadline(time.Now().Add(readTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	data, err := io.ReadAll(http.MaxBytesReader(r.w, r.Body, maxBody))
	if derr := rc.SetReadDeadline(time.Time{}); derr != nil && !errors.Is(derr, http.ErrNotSupported) {
		err = errors.Join(err, derr)
	}
	return data, err
}

func parseObject(data []byte, known []string) (patch, error) {
	if !utf8.Valid(data) {
		return nil, badRequest("body: it is not UTF-8")
	}
	if t := bytes.TrimSpace(data); len(t) == 0 || t[0] != '{' {
		return nil, badRequest("body: want a JSON object with any of: %s", listed(known))
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := unequivocal(dec, "", 0); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, badRequest("body: something follows the object at byte %d", dec.InputOffset())
	}
	var fields patch
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, badRequest("body: %v", err)
	}
	for name := range fields {
		if !slices.Contains(known, name) {
			return nil, badRequest("body: unknown field %q; there is %s", name, listed(known))
		}
	}
	return fields, nil
}

// maxDepth bounds how deep a body may nest.
const maxDepth = 64

// unequivocal reads one value and refuses a key that is given twice: readers differ
// in which of them counts.
func unequivocal(dec *json.Decoder, where string, depth int) error {
	if depth > maxDepth {
		return badRequest("body: nested more than %d deep", maxDepth)
	}
	token, err := dec.Token()
	if err != nil {
		return badRequest("body: no JSON at byte %d: %v", dec.InputOffset(), err)
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for dec.More() {
		place := where
		if delim == '{' {
			key, err := dec.Token()
			if err != nil {
				return badRequest("body: no JSON at byte %d: %v", dec.InputOffset(), err)
			}
			name, _ := key.(string)
			place = strings.TrimPrefix(where+"."+name, ".")
			if seen[name] {
				return badRequest("body: %s is given twice", place)
			}
			seen[name] = true
		}
		if err := unequivocal(dec, place, depth+1); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return badRequest("body: no JSON at byte %d: %v", dec.InputOffset(), err)
	}
	return nil
}

// maxText bounds a note or a reason.
const maxText = 2000

// flag reads a field that is true or false; one that is not there is false.
func flag(fields patch, name string) (on bool, err error) {
	raw, ok := fields[name]
	if !ok {
		return false, nil
	}
	if err := json.Unmarshal(raw, &on); err != nil || string(raw) == "null" {
		return false, badRequest("body: %s: want true or false", name)
	}
	return on, nil
}

// textField reads an optional string of a body.
func textField(fields patch, name string) (string, error) {
	raw, ok := fields[name]
	if !ok {
		return "", nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil || string(raw) == "null" {
		return "", badRequest("body: %s: want a string", name)
	}
	if strings.ContainsRune(s, 0) {
		return "", badRequest("body: %s: it holds a zero byte", name)
	}
	if len(s) > maxText {
		return "", badRequest("body: %s: %d bytes, want at most %d", name, len(s), maxText)
	}
	return s, nil
}
