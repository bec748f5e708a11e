// Package task is the vocabulary of runnerd: plain values that every other
// package speaks in. It holds no I/O, no clock and imports nothing of ours.
//
// Data flows one way through these types: an [Occurrence] becomes a [Run], a
// run takes steps, a step stores [Message] values, each [ToolCall] gets a
// [Receipt].
package task
