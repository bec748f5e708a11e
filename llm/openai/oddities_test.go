package openai_test

import (
	"testing"

	"runnerd/llm"
	"runnerd/llm/llmtest"
	"runnerd/llm/openai"
)

func TestOddities(t *testing.T) {
	llmtest.Oddities(t, "openai", func(t *testing.T, baseURL string) llm.Model {
		return open(t, openai.Options{Endpoint: llm.Endpoint{BaseURL: baseURL, Model: "m"}})
	})
}
