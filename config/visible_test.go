package config

import (
	"strings"
	"testing"
)

// A secret on a command line can be read by every process of the machine: a
// warning says so, and where it belongs.
func TestVisibleSecretsWarn(t *testing.T) {
	connector := func(entry string) map[string]string {
		return map[string]string{"connectors.d/x.yaml": "mcpServers:\n  x: {" + entry + "}\n"}
	}
	const seen = "other processes of this machine can read a command line (/proc/PID/cmdline)"
	tests := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"I11 a credential", connector("command: c, args: [--token, '${credential:gh}']"), "connectors.d/x.yaml:2:35: mcpServers.x.args[1]: a credential in an argument: " + seen},
		{"I11 in a text", connector("command: c, args: ['--header=Authorization: Bearer ${credential:gh}']"), "args[0]: a credential in an argument"},
		{"I11 of a builtin", connector("builtin: fetch, args: ['${credential:gh}']"), "args[0]: a credential in an argument"},
		{"I11 a variable that is one by its name", connector("command: c, args: ['${env:GITHUB_TOKEN}']"), "args[0]: a credential in an argument"},
		{"I11 a plain variable", connector("command: c, args: ['${env:LANG}']"), ""},
		{"I11 a path", connector("command: c, args: ['${env:HOME}/notes', '$${x}']"), ""},
		{"I11 in env", connector("command: c, env: {TOKEN: '${credential:gh}'}"), ""},
		{"I11 in a header", connector("url: 'https://x.example.com', headers: {Authorization: 'Bearer ${credential:gh}'}"), ""},
		{"I11 in a URL's query", connector("url: 'https://x.example.com/mcp?key=${credential:gh}'"), "url: a credential in a query: servers and proxies on the way log addresses; send it under headers:"},
		{"I11 delivery", map[string]string{"tasks/t.yaml": "prompt: p\ndeliver: [{to: command, command: [curl, -H, 'X: ${credential:gh}', 'https://x.example.com']}]\n"}, "deliver[0].command[2]: a credential in an argument"},
		{"I11 notify", map[string]string{"runnerd.yaml": "notify: [{to: command, command: [page, '${credential:gh}']}]\n"}, "notify[0].command[1]: a credential in an argument"},
		{"I11 model", map[string]string{"models.yaml": "models:\n  default: {provider: command, command: [m, '${credential:gh}'], model: m}\n"}, "command[1]: a credential in an argument"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := load(t, newDir(t, base(tt.files)).loader())
			if len(s.Problems) > 0 {
				t.Fatalf("problems %q", texts(s.Problems))
			}
			got := texts(s.Warnings)
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("warnings %q, want %q", got, tt.want)
			}
		})
	}
}
