// Package connector opens MCP sessions, lists and calls tools and keeps the
// children that serve them contained. The loop (package agentloop) calls it
// through its own small interface; cmd/runnerd wires it; control and check read
// its status.
//
// It promises:
//
//   - Everything ends: connect, list, call and close have deadlines that no
//     progress can extend, and every size (line, body, list, result) has a cap.
//   - A session is shared by all runs, opened on first use, closed when idle and
//     opened again on demand; a connector that keeps crashing is left alone for
//     a while, with one notice.
//   - Of a stdio connector nothing is left behind: the guard, a second process of
//     our own binary, ends the whole tree at close, at a crash of the server and
//     at a crash of the daemon, whatever the tree did to get away.
//   - A child gets an allowlisted environment and, where the kernel has Landlock,
//     cannot reach the protected paths.
//   - Nothing that a server says is trusted: it cannot ask for sampling,
//     elicitation or roots, links are not followed, redirects to other hosts are
//     refused, and what a tool may do is decided elsewhere.
//
// It decides nothing: whether a call may happen is package policy's business,
// and whether it is repeated the loop's.
package connector
