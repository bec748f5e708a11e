package agentloop

import (
	"context"
	"slices"
	"strings"
	"time"

	"runnerd/llm"
	"runnerd/task"
)

// A model that writes its calls as text has done nothing and often says that it
// has. It is told once what a call looks like.
const (
	writtenCall = "[runnerd] Your last message is a tool call written as text, or a part of one. Nothing was run. "

	nativeForm = "Make a call through the tool interface of this conversation, as a structured call with the tool's name and its arguments, never as text."
	fencedForm = "Write a call as a block of exactly this form, the fences at the beginning of their lines:\n```tool_call\n{\"tool\": \"NAME\", \"arguments\": {}}\n```"

	orAnswer = "\nMake the call now, or, if you meant none, give your final answer in plain words."
)

// wroteCall tells whether a last word is a call written as text by a model that had
// tools. An answer that the task's output_schema wants is none.
func (a *attempt) wroteCall(msg *task.Message) bool {
	if msg == nil || !msg.LastWord() {
		return false
	}
	offered := []string{reportTool}
	for _, s := range msg.Slots {
		offered = append(offered, s.Alias, s.Tool, s.Connector+"/"+s.Tool)
	}
	if len(msg.Slots) == 0 && !a.lastOffer.Report || !llm.WrittenCall(msg.Text, offered) {
		return false
	}
	return len(a.spec.OutputSchema) == 0 || fitsOutput(a.spec.OutputSchema, msg.Text) != nil
}

// tellCall answers a last word that is a call written as text: the model is told,
// once a run, and asked again; told tells so. The second one ends the run.
func (a *attempt) tellCall(ctx context.Context) (told bool, err error) {
	if !a.wroteCall(a.lastWord()) {
		return false, nil
	}
	text := writtenCall + nativeForm + orAnswer
	if a.fenced {
		text = writtenCall + fencedForm + orAnswer
	}
	if slices.ContainsFunc(a.msgs, func(m task.Message) bool {
		return m.Role == task.RoleUser && m.Step > 0 && strings.HasPrefix(m.Text, writtenCall)
	}) {
		a.run.Mark(task.MarkCallAsText)
		return false, a.fail("%s: the model wrote a tool call as text again, after it was told how to call; see tool_mode of model %s in models.yaml",
			task.MarkCallAsText, a.modelSpec.Name)
	}
	return true, a.append(ctx, &task.Message{
		Session: a.run.Session, Run: a.run.ID, Step: a.steps(), Role: task.RoleUser, Text: text, At: time.Now(),
	})
}
