// Package command asks a model that is a program: the conversation goes to its
// standard input as plain text, its standard output is the answer. Each call
// starts the program anew in a process group of its own, of which nothing is
// left when the call returns. It can take no tools. The wiring opens it for
// `provider: command`.
package command
