package config

import (
	"strings"
	"testing"
)

func TestPlainSecretsWarn(t *testing.T) {
	const ghp = "ghp_0123456789abcdefABCDEF0123456789abcd"
	model := func(key string) (string, string) {
		return "models.yaml", "models:\n  default: {provider: openai, model: m, api_key: '" + key + "'}\n"
	}
	env := func(name, value string) (string, string) {
		return "connectors.d/x.yaml", "mcpServers:\n  x: {command: c, env: {" + name + ": '" + value + "'}}\n"
	}
	header := func(name, value string) (string, string) {
		return "connectors.d/x.yaml", "mcpServers:\n  x: {url: 'https://x.example.com', headers: {" + name + ": '" + value + "'}}\n"
	}
	at := func(file, text string) [2]string { return [2]string{file, text} }
	tests := []struct {
		name string
		in   [2]string
		want string // part of the one warning; empty: none
	}{
		{"F6 a vendor's key", at(model("sk-proj-abcdefghijklmnop")), "models.yaml:2:50: models.default.api_key: this looks like a key in plain text; put it into a file of the credentials directory and write ${credential:NAME}"},
		{"F6 any key", at(model("0123456789abcdef")), "looks like a key in plain text"},
		{"F6 a word for no key", at(model("ollama")), ""},
		{"F6 a shell's variable", at(model("$OPENAI_API_KEY")), `"$OPENAI_API_KEY" is sent as it stands: nothing replaces it; write ${env:OPENAI_API_KEY} or ${credential:NAME}`},
		{"F6 a reference", at(model("${credential:openai}")), ""},
		{"F6 a variable", at(model("${env:OPENAI_API_KEY}")), ""},
		{"F6 a token in env", at(env("GITHUB_PERSONAL_ACCESS_TOKEN", ghp)), "env.GITHUB_PERSONAL_ACCESS_TOKEN: this looks like a key"},
		{"F6 a token under any name", at(env("X", ghp)), "looks like a key"},
		{"F6 a password", at(env("DB_PASSWORD", "tr0ub4dor3")), "looks like a key"},
		{"F6 a variable in env", at(env("TOKEN", "%TOKEN%")), "is sent as it stands"},
		{"F6 a path", at(env("TOKEN_FILE", "/run/token1")), ""},
		{"F6 a plain word", at(env("KEYBOARD", "qwerty123")), ""},
		{"F6 a header", at(header("Authorization", "Bearer 0123456789abcdef")), "headers.Authorization: this looks like a key"},
		{"F6 a variable in a header", at(header("Authorization", "Bearer $TOKEN")), "is sent as it stands"},
		{"F6 a header with a reference", at(header("Authorization", "Bearer ${credential:x}")), ""},
		{"F6 a plain header", at(header("X-Version", "2026-07-28")), ""},
		{"F6 a key in a URL", [2]string{"connectors.d/x.yaml", "mcpServers:\n  x: {url: 'https://x.example.com/mcp?api_key=0123456789'}\n"}, "url: this looks like a key"},
		{"F6 a password in a URL", [2]string{"tasks/t.yaml", "prompt: p\ndeliver: [{to: notify, url: 'smtp://me:hunter22@mail.example.com'}]\n"}, "deliver[0].url: this looks like a key"},
		{"F6 a key in arguments", [2]string{"connectors.d/x.yaml", "mcpServers:\n  x: {command: c, args: [--token, " + ghp + "]}\n"}, "args[1]: this looks like a key"},
		{"F6 a file of another host", [2]string{".mcp.json", `{"mcpServers": {"x": {"command": "c", "env": {"K": "` + ghp + `"}}}}`}, ".mcp.json:1:52: mcpServers.x.env.K: this looks like a key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := load(t, newDir(t, base(map[string]string{tt.in[0]: tt.in[1]})).loader())
			if len(s.Problems) > 0 {
				t.Fatalf("problems %q", texts(s.Problems))
			}
			got := texts(s.Warnings)
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("warnings %q, want %q", got, tt.want)
			}
			if strings.Contains(strings.Join(got, " "), ghp) {
				t.Error("the warning repeats the key")
			}
		})
	}
}
