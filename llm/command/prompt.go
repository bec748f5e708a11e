package command

import (
	"strings"

	"runnerd/task"
)

// mark begins a line that says whose the lines below it are.
const mark = "=== "

// prompt is the text that a program is given (see the package's documentation).
func prompt(system string, msgs []task.Message) string {
	var b strings.Builder
	section := func(title, text string) {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(mark + title + " ===\n")
		if text = strings.TrimRight(text, "\n"); text != "" {
			b.WriteString(quote(text) + "\n")
		}
	}
	if system != "" {
		section("system", system)
	}
	names := map[string]string{}
	for _, m := range msgs {
		switch m.Role {
		case task.RoleAssistant:
			text := m.Text
			for _, c := range m.Calls {
				names[c.ID] = oneLine(c.Name)
				text += "\n(calls " + oneLine(c.Name) + " " + oneLine(c.Arguments) + ")"
			}
			section("assistant", strings.TrimPrefix(text, "\n"))
		case task.RoleTool:
			title := "tool result: "
			if m.IsError {
				title = "tool error: "
			}
			section(title+names[m.CallID], m.Text)
		default:
			section("user", m.Text)
		}
	}
	return b.String()
}

// breaks makes one kind of line break of three: a lone \r begins a line to many
// programs.
var breaks = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// quote indents the lines that look like a speaker's.
func quote(text string) string {
	lines := strings.Split(breaks.Replace(text), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, mark) {
			lines[i] = " " + l
		}
	}
	return strings.Join(lines, "\n")
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
