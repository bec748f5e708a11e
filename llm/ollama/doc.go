// Package ollama speaks the native chat wire of Ollama as a client of our own:
// the one that sets the size of the context window, which the server's
// OpenAI-compatible wire cannot. It streams, keeps the exact bytes of arguments
// and every field of a message that it does not know, and never retries. The
// wiring opens it for `provider: ollama`.
package ollama
