// Package conformance holds the official MCP conformance suite against our
// client. It is a test and nothing else.
package conformance
