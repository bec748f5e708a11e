// Package anthropic speaks the messages wire as a client of our own. It streams,
// keeps reasoning blocks and their signatures byte for byte and sends them back
// in their place, keeps the exact bytes of arguments, and never retries. The
// wiring opens it for `provider: anthropic`.
package anthropic
