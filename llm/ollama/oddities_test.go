package ollama_test

import (
	"testing"

	"runnerd/llm"
	"runnerd/llm/llmtest"
	"runnerd/llm/ollama"
)

func TestOddities(t *testing.T) {
	llmtest.Oddities(t, "ollama", func(t *testing.T, baseURL string) llm.Model {
		return open(t, ollama.Options{Endpoint: llm.Endpoint{BaseURL: baseURL, Model: "m"}})
	})
}
