package provider_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runnerd/llm"
	"runnerd/llm/provider"
	"runnerd/task"
)

func next(m llm.Model, t *testing.T) (*llm.Response, error) {
	return m.Next(t.Context(), &llm.Request{Messages: []task.Message{{Role: task.RoleUser, Text: "Go."}}})
}

func asWritten(s string) (string, error) { return s, nil }

func TestScripted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(file, []byte("turns:\n- say: hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := provider.Open(task.ModelSpec{Name: "s", Provider: provider.Scripted, Script: file}, asWritten)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := next(m, t); err != nil || r.Text != "hello" {
		t.Errorf("%+v, %v", r, err)
	}
}

// A key is resolved at each call: a rotated one counts at once, a missing one is
// the call's failure and not the daemon's.
func TestKeyIsResolvedAtUse(t *testing.T) {
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}`))
	}))
	defer srv.Close()
	key, failure := "one", error(nil)
	resolve := func(s string) (string, error) {
		switch s {
		case "${credential:k}":
			return key, failure
		case "${env:BASE}":
			return srv.URL, nil
		}
		return s, nil
	}
	m, err := provider.Open(task.ModelSpec{Name: "m", Provider: provider.OpenAI, Model: "x",
		BaseURL: "${env:BASE}", APIKey: "${credential:k}", Timeout: time.Minute}, resolve)
	if err != nil {
		t.Fatal(err)
	}
	for _, key = range []string{"one", "two", ""} {
		if _, err := next(m, t); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(seen, "|"); got != "Bearer one|Bearer two|" {
		t.Errorf("keys sent: %s", got)
	}
	failure = errors.New("no such credential")
	if _, err := next(m, t); llm.ErrorKind(err) != llm.Auth || !strings.Contains(err.Error(), "no such credential") {
		t.Errorf("got %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	broken := func(string) (string, error) { return "", errors.New("BASE is not set") }
	tests := []struct {
		spec    task.ModelSpec
		resolve func(string) (string, error)
		want    string
	}{
		{task.ModelSpec{Name: "m", Provider: "gopher"}, asWritten, `open model m: provider "gopher" is not known`},
		{task.ModelSpec{Name: "m", Provider: provider.OpenAI, Model: "x", BaseURL: "${env:BASE}"}, broken, "open model m: base_url: BASE is not set"},
		{task.ModelSpec{Name: "m", Provider: provider.OpenAI, Model: "x", BaseURL: "host"}, asWritten, "absolute http"},
		{task.ModelSpec{Name: "m", Provider: provider.OpenAI}, asWritten, "model: is missing"},
		{task.ModelSpec{Name: "m", Provider: provider.Scripted, Script: "none.yaml"}, asWritten, "read script"},
	}
	for _, tt := range tests {
		if _, err := provider.Open(tt.spec, tt.resolve); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.spec, err, tt.want)
		}
	}
}
