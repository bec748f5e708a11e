package systemd_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"runnerd/systemd"
)

// fields parses the journal's native protocol, independently of the writer.
func fields(t *testing.T, data string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for data != "" {
		end := strings.IndexByte(data, '\n')
		if end < 0 {
			t.Fatalf("no end of line in %q", data)
		}
		name, value, plain := strings.Cut(data[:end], "=")
		data = data[end+1:]
		if !plain {
			size := binary.LittleEndian.Uint64([]byte(data[:8]))
			value, data = data[8:8+size], data[8+size+1:]
		}
		if _, twice := m[name]; twice {
			t.Errorf("field %s twice", name)
		}
		m[name] = value
	}
	return m
}

func openJournal(t testing.TB, level zapcore.Level) (manager, *zap.Logger) {
	t.Helper()
	m := newManager(t)
	j, err := systemd.OpenJournal(m.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return m, zap.New(j.Core(level, nil))
}

func TestJournal(t *testing.T) {
	m, log := openJournal(t, zap.InfoLevel)
	log.Debug("not this")
	run := log.Named("dispatch").With(zap.String("run", "r1"))
	run.With(zap.String("task", "other")) // must not leak into run
	run.Warn("run left its worker",
		zap.Duration("duration", 1500*time.Millisecond),
		zap.Error(errors.New("disk full")),
		zap.Strings("active", []string{"a", "b"}),
		zap.Int("attempt", 2),
		zap.Bool("retry", true),
		zap.Time("not_before", time.Date(2026, 3, 29, 7, 0, 0, 5, time.UTC)),
		zap.String("stack", "one\ntwo"),
		zap.String("empty", ""),
		zap.Any("odd key=\n", 1),
	)
	want := map[string]string{
		"MESSAGE": `run left its worker run=r1 duration=1.5s error="disk full" active="[\"a\",\"b\"]" attempt=2 retry=true` +
			" not_before=2026-03-29T07:00:00.000000005Z empty=\"\" odd key=\n=1\none\ntwo",
		"PRIORITY": "4", "SYSLOG_IDENTIFIER": "runnerd", "RUNNERD_LOGGER": "dispatch",
		"RUNNERD_RUN": "r1", "RUNNERD_DURATION": "1.5s", "RUNNERD_ERROR": "disk full", "RUNNERD_ACTIVE": `["a","b"]`,
		"RUNNERD_ATTEMPT": "2", "RUNNERD_RETRY": "true", "RUNNERD_NOT_BEFORE": "2026-03-29T07:00:00.000000005Z",
		"RUNNERD_STACK": "one\ntwo", "RUNNERD_EMPTY": "", "RUNNERD_ODD_KEY__": "1",
	}
	got := fields(t, m.next(t))
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	for name, value := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("unwanted %s=%q", name, value)
		}
	}
}

func TestJournalPriorities(t *testing.T) {
	m, log := openJournal(t, zap.DebugLevel)
	for level, want := range map[zapcore.Level]string{zap.DebugLevel: "7", zap.InfoLevel: "6", zap.WarnLevel: "4", zap.ErrorLevel: "3", zap.DPanicLevel: "2"} {
		log.Log(level, "x")
		if got := fields(t, m.next(t))["PRIORITY"]; got != want {
			t.Errorf("%s has priority %s, want %s", level, got, want)
		}
	}
}

func TestJournalBounded(t *testing.T) {
	m, log := openJournal(t, zap.InfoLevel)
	var many []zap.Field
	for i := range 40 {
		many = append(many, zap.String("k"+strings.Repeat("x", i), strings.Repeat("ü", 10_000)))
	}
	log.Info("big", many...)
	data := m.next(t)
	if len(data) > 96<<10 {
		t.Errorf("%d bytes in one entry", len(data))
	}
	if got := fields(t, data); len(got["RUNNERD_K"]) > 17<<10 || !strings.HasSuffix(got["RUNNERD_K"], "ü…") || !strings.HasPrefix(got["MESSAGE"], "big k=ü") {
		t.Errorf("a field of %d bytes, a message of %d", len(got["RUNNERD_K"]), len(got["MESSAGE"]))
	}
}

// No known secret reaches the journal, in no field.
func TestJournalRedacts(t *testing.T) {
	m := newManager(t)
	j, err := systemd.OpenJournal(m.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	hide := func(s string) string { return strings.ReplaceAll(s, "hunter22", "[redacted]") }
	log := zap.New(j.Core(zap.InfoLevel, hide)).With(zap.String("with", "hunter22"))
	log.Info("password hunter22", zap.Error(errors.New("said hunter22")), zap.Strings("list", []string{"hunter22"}))
	for name, value := range fields(t, m.next(t)) {
		if strings.Contains(value, "hunter22") {
			t.Errorf("%s is %q", name, value)
		}
	}
}

func TestJournalGone(t *testing.T) {
	j, err := systemd.OpenJournal(t.TempDir() + "/none")
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Core(zap.InfoLevel, nil).Write(zapcore.Entry{Message: "x"}, nil); err == nil {
		t.Error("an entry to nowhere was taken")
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add("message", "key", "value")
	f.Add("two\nlines", "RUN=x\n", "PRIORITY=0\nMESSAGE=forged")
	f.Add("\xff", "", strings.Repeat("x", 20_000))
	m, log := openJournal(f, zap.InfoLevel)
	f.Fuzz(func(t *testing.T, message, key, value string) {
		log.Info(message, zap.String(key, value))
		got := fields(t, m.next(t))
		if len(got) != 4 || got["PRIORITY"] != "6" {
			t.Errorf("fields %q", got)
		}
	})
}
