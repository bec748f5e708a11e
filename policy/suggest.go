package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"runnerd/task"
)

// Suggestion is a class for a tool, for a person to review before it goes into
// `classes:`. It is a guess from words that the server chose and decides nothing.
type Suggestion struct {
	Tool    string `json:"tool"`
	Class   Class  `json:"class"`
	Current Class  `json:"current"`
	Why     string `json:"why"`
}

var readWords = []string{
	"get", "list", "read", "search", "find", "show", "describe", "view", "count", "status", "diff", "log", "stat", "info",
	"lookup", "check", "tree", "head", "tail", "peek", "recall", "browse", "explain", "resolve", "fetch", "whoami", "time",
}

var execWords = []string{
	"delete", "remove", "drop", "destroy", "purge", "wipe", "erase", "truncate", "reset", "run", "exec", "execute", "eval",
	"evaluate", "shell", "command", "query", "sql", "kill", "stop", "restart", "merge", "deploy", "publish", "pay", "transfer",
	"refund", "send", "forget", "revoke", "grant", "force", "push",
}

// effectWords are those of what changes something; execWords do more.
var effectWords = []string{
	"mark", "archive", "create", "update", "write", "edit", "set", "add", "insert", "move", "rename", "reply", "forward", "save", "upload",
	"append", "close", "submit", "book", "cancel", "accept", "decline", "subscribe", "unsubscribe", "invite", "share", "approve", "buy",
}

// effect is a word of the name that says that the tool does something, unless a
// word of reading comes before it: get_send_status, but not get_or_create_label.
func effect(name string) string {
	words := nameWords(name)
	for i, w := range words {
		switch {
		case slices.Contains(effectWords, w), slices.Contains(execWords, w) && !slices.Contains(askingWords, w):
			return w
		case slices.Contains(readWords, w) && !(i+1 < len(words) && slices.Contains([]string{"or", "and"}, words[i+1])):
			return ""
		}
	}
	return ""
}

// askingWords may read or not.
var askingWords = []string{"query", "sql", "run", "command", "evaluate", "eval"}

// SuggestClasses proposes a class for each tool from the server's annotations and
// from the words of its name. Where they disagree the higher class is proposed.
func SuggestClasses(rules ConnectorRules, tools []task.Tool) []Suggestion {
	out := make([]Suggestion, 0, len(tools))
	for _, t := range uniqueTools(tools) {
		s := Suggestion{Tool: t.Name}
		s.Current, _ = Classify(rules, t)
		s.Class, s.Why = suggest(t)
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Suggestion) int { return strings.Compare(a.Tool, b.Tool) })
	return out
}

func suggest(t task.Tool) (Class, string) {
	name := nameWords(t.Name)
	danger := firstOf(name, execWords)
	looks := firstOf(name, readWords)
	switch readOnly := hint(t.Annotations.ReadOnly); {
	case danger != "" && readOnly:
		return ClassExec, fmt.Sprintf("its name says %q although the server calls it read-only", danger)
	case danger != "":
		return ClassExec, fmt.Sprintf("its name says %q", danger)
	case hint(t.Annotations.Destructive) && !readOnly:
		return ClassExec, "the server calls it destructive"
	case readOnly && effect(t.Name) != "":
		return ClassWrite, fmt.Sprintf("its name says %q although the server calls it read-only", effect(t.Name))
	case readOnly:
		return ClassRead, "the server calls it read-only"
	case looks != "" && effect(t.Name) != "":
		return ClassWrite, fmt.Sprintf("its name says %q", effect(t.Name))
	case looks != "" && t.Annotations.ReadOnly == nil:
		return ClassRead, fmt.Sprintf("its name says %q and the server says nothing; read its description first", looks)
	case looks != "":
		return ClassWrite, fmt.Sprintf("its name says %q but the server does not call it read-only", looks)
	}
	return ClassWrite, "neither its name nor the server calls it reading or destructive"
}

// nameWords splits read_file, readFile and read-file alike.
func nameWords(name string) []string {
	var b strings.Builder
	var before rune
	for _, r := range name {
		if unicode.IsUpper(r) && unicode.IsLower(before) {
			b.WriteByte(' ')
		}
		if unicode.IsLetter(r) {
			b.WriteRune(unicode.ToLower(r))
		} else {
			b.WriteByte(' ')
		}
		before = r
	}
	return strings.Fields(b.String())
}

func firstOf(words, known []string) string {
	for _, w := range words {
		if slices.Contains(known, w) {
			return w
		}
	}
	return ""
}
