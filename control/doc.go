// Package control is the daemon's HTTP and JSON interface on a unix socket, its Go
// client and its event stream. cmd/runnerd listens with Listen, builds a Server
// from the parts of the daemon and calls Serve; the verbs of the command line use
// Client.
//
// It promises that every request is judged by what the kernel says about the peer
// (SO_PEERCRED), that reading, running and approving are three separate rights and
// an unknown peer has none (DESIGN, section 6), that a request with anything
// unknown in it is refused by name and changes nothing, and that a PATCH keeps
// absent, null, empty and listed apart. Every wait, body and stream is bounded.
//
// The rows here (RunRow, TaskRow, ReceiptRow, …) are also what the command line
// prints with --json, so that both say the same.
package control
