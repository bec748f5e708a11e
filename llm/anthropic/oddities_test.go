package anthropic_test

import (
	"testing"

	"runnerd/llm"
	"runnerd/llm/anthropic"
	"runnerd/llm/llmtest"
)

func TestOddities(t *testing.T) {
	llmtest.Oddities(t, "anthropic", func(t *testing.T, baseURL string) llm.Model {
		return open(t, anthropic.Options{Endpoint: llm.Endpoint{BaseURL: baseURL, Model: "m"}})
	})
}
