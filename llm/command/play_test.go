package command_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"runnerd/llm"
	"runnerd/llm/command"
	"runnerd/llm/llmtest"
	"runnerd/task"
)

// scriptVariable makes the test's own binary a program that plays a script.
const scriptVariable = "RUNNERD_TEST_SCRIPT"

func TestMain(m *testing.M) {
	if path := os.Getenv(scriptVariable); path != "" {
		if err := play(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	llmtest.Conformance(t, llmtest.Subject{
		New: func(t llmtest.TB, script []llmtest.Turn) llm.Model {
			data, err := json.Marshal(script)
			path := filepath.Join(t.TempDir(), "script.json")
			if err != nil || os.WriteFile(path, data, 0o600) != nil {
				t.Fatalf("write script: %v", err)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatalf("%v", err)
			}
			m, err := command.New(command.Options{Argv: []string{self}, Env: []string{scriptVariable + "=" + path}})
			if err != nil {
				t.Fatalf("new: %v", err)
			}
			return m
		},
		// A pipe does not keep pieces apart; TestStreams does without it.
		Lacks: []llmtest.Feature{llmtest.Calls, llmtest.RawArguments, llmtest.Reasoning, llmtest.Usage, llmtest.Finish, llmtest.Streaming},
	})
}

// play is the program: it reads the prompt back and answers as scripted.
func play(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var script []llmtest.Turn
	if err := json.Unmarshal(data, &script); err != nil {
		return err
	}
	prompt, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	heard, err := hear(string(prompt))
	if err != nil {
		return err
	}
	turn, ok := llmtest.Hear(&complaints{}, script, heard)
	if !ok {
		return errors.New("bad history")
	}
	if turn.Hang {
		time.Sleep(time.Hour)
	}
	_, err = io.WriteString(os.Stdout, turn.Text()+"\n")
	return err
}

// hear reads a prompt of user and assistant messages.
func hear(prompt string) ([]task.Message, error) {
	rest, ok := strings.CutPrefix(prompt, "=== system ===\nYou are a test.\n\n=== ")
	if !ok {
		return nil, fmt.Errorf("no system prompt first: %q", prompt)
	}
	var heard []task.Message
	for _, section := range strings.Split(rest, "\n=== ") {
		role, text, ok := strings.Cut(section, " ===\n")
		if !ok {
			return nil, fmt.Errorf("section %q", section)
		}
		heard = append(heard, task.Message{Role: task.Role(role), Text: strings.TrimSuffix(text, "\n")})
	}
	return heard, nil
}

// complaints are a test's words in the program that it started.
type complaints struct{}

func (*complaints) Helper() {}
func (*complaints) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
func (c *complaints) Fatalf(format string, args ...any) { c.Errorf(format, args...); os.Exit(1) }
func (*complaints) Cleanup(func())                      {}
func (*complaints) TempDir() string                     { return os.TempDir() }
