// Package command asks a model that is a program: the conversation goes to its
// standard input as plain text, its standard output is the answer. Each call
// starts the program anew in a process group of its own, of which nothing is
// left when the call returns. It can take no tools. The wiring opens it for
// `provider: command`.
//
// The text has the system's instructions first and then each message, below a
// line that says whose it is:
//
//	=== system ===
//	=== user ===
//	=== assistant ===
//	=== tool result: NAME ===
//	=== tool error: NAME ===
//
// A line of a message that begins like one of these is indented by a space, so
// that no message can pass for another. An assistant's calls are lines of the
// form (calls NAME ARGUMENTS) below its text.
package command
