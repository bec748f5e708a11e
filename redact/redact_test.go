package redact_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"

	"runnerd/redact"
)

const awkward = `p@ss"w/ö\rd<1> &+%`

func set(secrets ...redact.Secret) *redact.Set {
	s := redact.New()
	s.Replace(secrets)
	return s
}

func TestText(t *testing.T) {
	s := set(redact.Secret{Name: "key", Value: "sk-12345678"}, redact.Secret{Name: "long", Value: "sk-12345678-and-more"},
		redact.Secret{Name: "short", Value: "1234567"}, redact.Secret{Name: "other", Value: "5678-and-xyz"})
	tests := []struct{ name, in, want string }{
		{"nothing", "nothing here", "nothing here"},
		{"empty", "", ""},
		{"plain", "key=sk-12345678;", "key=[redacted:key];"},
		{"alone", "sk-12345678", "[redacted:key]"},
		{"twice", "sk-12345678sk-12345678", "[redacted:key][redacted:key]"},
		{"longest", "x sk-12345678-and-more y", "x [redacted:long] y"},
		{"almost the longest", "x sk-12345678-and-mor", "x [redacted:key]-and-mor"},
		{"overlapping", "sk-12345678-and-xyz.", "[redacted:other]."},
		{"begins twice", "sk-sk-12345678", "sk-[redacted:key]"},
		{"too short is no secret", "1234567", "1234567"},
		{"cut short", "sk-1234567", "sk-1234567"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := s.Text(tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := string(s.Bytes([]byte(tt.in))); got != tt.want {
				t.Errorf("bytes: got %q, want %q", got, tt.want)
			}
			for size := 1; size < 8; size++ {
				if got := stream(t, s, tt.in, size); got != tt.want {
					t.Errorf("chunks of %d: got %q, want %q", size, got, tt.want)
				}
			}
		})
	}
}

func stream(t *testing.T, s *redact.Set, text string, size int) string {
	t.Helper()
	var b bytes.Buffer
	w := s.Writer(&b)
	for data := []byte(text); len(data) > 0; {
		n := min(size, len(data))
		if m, err := w.Write(data[:n]); err != nil || m != n {
			t.Fatalf("write: %d, %v", m, err)
		}
		data = data[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return b.String()
}

func TestForms(t *testing.T) {
	pem := "-----BEGIN KEY-----\n" + strings.Repeat("MIIEvQ", 10) + "\n-----END KEY-----\n"
	for name, value := range map[string]string{"awkward": awkward, "token": "abcd1234efgh", "newline": "hunter2-hunter2\n", "emoji": "pass\U0001F980word", "pem": pem} {
		s := set(redact.Secret{Name: "x", Value: value})
		trimmed := strings.TrimSpace(value)
		quoted, _ := json.Marshal(trimmed)
		nested, _ := json.Marshal(string(quoted))
		var loose bytes.Buffer
		enc := json.NewEncoder(&loose)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(trimmed)
		texts := map[string]string{
			"plain":       "a" + trimmed + "b",
			"json":        string(quoted),
			"json loose":  loose.String(),
			"json nested": string(nested),
			"query":       url.Values{"q": {trimmed}}.Encode(),
			"query lower": strings.ToLower("https://x/?q=") + lowerEscapes(url.QueryEscape(trimmed)),
			"path":        "/p/" + url.PathEscape(trimmed),
			"hex":         hex.EncodeToString([]byte("x" + trimmed)),
			"HEX":         strings.ToUpper(hex.EncodeToString([]byte(trimmed + "y"))),
			"html":        html.EscapeString(trimmed),
		}
		for i := range 4 {
			pre, post := strings.Repeat("u", i), strings.Repeat(":", 3-i)
			texts[fmt.Sprintf("base64 at %d", i)] = base64.StdEncoding.EncodeToString([]byte(pre + trimmed + post))
			texts[fmt.Sprintf("base64url at %d", i)] = base64.RawURLEncoding.EncodeToString([]byte(pre + trimmed + post))
		}
		for form, text := range texts {
			if got := s.Text(text); !strings.Contains(got, "[redacted:x]") {
				t.Errorf("%s as %s survived: %q", name, form, got)
			}
			if got := s.Find(text); got != "x" {
				t.Errorf("%s as %s was not found in %q", name, form, text)
			}
		}
	}
	s := set(redact.Secret{Name: "x", Value: pem})
	if got := s.Text("log: " + strings.Repeat("MIIEvQ", 10) + " end"); got != "log: [redacted:x] end" {
		t.Errorf("a line of a key survived: %q", got)
	}
	if got := s.Text("log: -----BEGIN KEY-----"); got != "log: -----BEGIN KEY-----" {
		t.Errorf("the heading of a key is no secret: %q", got)
	}
}

func lowerEscapes(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			b.WriteString(strings.ToLower(s[i : i+3]))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func TestFind(t *testing.T) {
	s := set(redact.Secret{Name: "a", Value: "aaaaaaaa"}, redact.Secret{Name: "b", Value: "bbbbbbbb"})
	for text, want := range map[string]string{"": "", "x": "", "bbbbbbbb aaaaaaaa": "b", `{"k":"aaaaaaaa"}`: "a"} {
		if got := s.Find(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestLiveChanges(t *testing.T) {
	s := redact.New()
	if got := s.Text("first-secret"); got != "first-secret" {
		t.Errorf("an empty set changed %q", got)
	}
	s.Add(redact.Secret{Name: "n", Value: "first-secret"})
	s.Add(redact.Secret{Name: "n", Value: "second-secret"})
	if got := s.Text("first-secret second-secret"); got != "[redacted:n] [redacted:n]" {
		t.Errorf("both values of a name: %q", got)
	}
	var b bytes.Buffer
	w := s.Writer(&b)
	io.WriteString(w, "first-")
	s.Replace([]redact.Secret{{Name: "m", Value: "third-secret"}, {Name: "later", Value: "third-secret"}})
	io.WriteString(w, "secret third-")
	io.WriteString(w, "secret")
	w.Close()
	if got := b.String(); got != "first-secret [redacted:m]" {
		t.Errorf("after a replace: %q", got)
	}
	s.Replace(nil)
	if got := s.Find("third-secret"); got != "" {
		t.Errorf("after emptying: %q", got)
	}
}

func TestNilSet(t *testing.T) {
	var s *redact.Set
	if s.Text("x") != "x" || string(s.Bytes([]byte("x"))) != "x" || s.Find("x") != "" || stream(t, s, "abc", 2) != "abc" {
		t.Error("a nil set is not the one without secrets")
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestWriterErrors(t *testing.T) {
	broken := errors.New("disk full")
	w := set(redact.Secret{Name: "x", Value: "12345678"}).Writer(failing{broken})
	for range 2 {
		if _, err := io.WriteString(w, "hello"); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	if err := w.Close(); !errors.Is(err, broken) {
		t.Errorf("close: %v", err)
	}
	if _, err := io.WriteString(w, "late"); err == nil {
		t.Error("a closed writer took text")
	}
}

// What cannot begin a secret is passed on at once: a live tail must not wait.
func TestWriterDoesNotHold(t *testing.T) {
	var b bytes.Buffer
	w := set(redact.Secret{Name: "x", Value: strings.Repeat("secret", 500)}).Writer(&b)
	io.WriteString(w, "line one\nsec")
	if got := b.String(); got != "line one\n" {
		t.Errorf("passed on %q", got)
	}
	io.WriteString(w, "ond\n")
	if got := b.String(); got != "line one\nsecond\n" {
		t.Errorf("passed on %q", got)
	}
	w.Close()
}

func TestConcurrentUse(t *testing.T) {
	s := redact.New()
	var wg sync.WaitGroup
	var b bytes.Buffer
	w := s.Writer(&b)
	for i := range 4 {
		wg.Go(func() {
			for j := range 200 {
				s.Replace([]redact.Secret{{Name: "x", Value: fmt.Sprintf("secret-%d-%d", i, j)}})
				s.Text("secret-1-100")
				io.WriteString(w, "secret-2-")
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil || !strings.HasPrefix(b.String(), "secret-2-secret-2-") {
		t.Errorf("%v, %.40q", err, b.String())
	}
}

// Whatever the chunks, no secret survives and no other text is changed.
func FuzzChunks(f *testing.F) {
	f.Add("secret-abcdefgh", "efgh-ijkl", "x secret-abcdefgh-ijkl y", uint64(3))
	f.Add("aaaaaaaa", "aaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaaab", uint64(1))
	f.Add("abababab", "babababa", "xabababababab", uint64(9))
	f.Fuzz(func(t *testing.T, a, b, text string, seed uint64) {
		if strings.ContainsAny(a+b, "[]") || inMarker(a) || inMarker(b) {
			return // a secret that is part of the mark itself cannot be kept out
		}
		s := set(redact.Secret{Name: "a", Value: a}, redact.Secret{Name: "b", Value: b})
		text += a + text + base64.StdEncoding.EncodeToString([]byte(b))
		want := s.Text(text)
		for _, secret := range []string{a, b} {
			if len(secret) >= redact.MinLength && strings.Contains(want, secret) {
				t.Fatalf("%q survives in %q", secret, want)
			}
		}
		var out bytes.Buffer
		w := s.Writer(&out)
		rng := rand.New(rand.NewPCG(seed, 0))
		for data := []byte(text); len(data) > 0; {
			n := 1 + rng.IntN(min(len(data), 12))
			w.Write(data[:n])
			data = data[n:]
		}
		w.Close()
		if out.String() != want {
			t.Fatalf("in chunks %q, whole %q", out.String(), want)
		}
	})
}

func inMarker(secret string) bool {
	return strings.Contains("redacted:a redacted:b", secret) || strings.HasPrefix(secret, "redacted:") ||
		strings.HasSuffix(secret, "redacted:a") || strings.HasSuffix(secret, "redacted:b")
}

func BenchmarkText(b *testing.B) {
	var secrets []redact.Secret
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 50 {
		value := make([]byte, 40)
		for j := range value {
			value[j] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789-_"[rng.IntN(48)]
		}
		secrets = append(secrets, redact.Secret{Name: fmt.Sprint("s", i), Value: string(value)})
	}
	s := set(secrets...)
	words := strings.Repeat("The quick brown fox jumps over the lazy dog, 1234567890 times a day. ", 1<<20/69)
	dirty := words[:len(words)/2] + secrets[7].Value + words[len(words)/2:]
	for name, text := range map[string]string{"clean": words, "one secret": dirty} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				s.Text(text)
			}
		})
	}
	b.Run("replace", func(b *testing.B) {
		for b.Loop() {
			s.Replace(secrets)
		}
	})
}
