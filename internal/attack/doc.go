// Package attack is a suite of scripted attacks against the whole loop: real
// databases, the real connector pool, and models that obey whatever they read over
// servers in processes of their own. Only its own test and `make attack` run it; it is no part
// of the binary.
//
// A scenario is an operator's setup, the job that the user wants done, and what
// an attacker puts where a model will read it. It is played four times: without
// the attack, with it before a model that ignores it, before one that obeys every
// order that reaches it, and before one that tries the attack's arguments on each
// tool there is. The promise under test is DESIGN's second: a call happens only
// because policy, read at that moment, allows it. A model is therefore assumed to
// be lost; what counts is what reached the servers.
//
// Errands at desks (office, bank, travel, chat) hold exact lines against what an
// attacker makes of them, and so do sets of other lines, against policy alone; where the whole daemon matters, the binary itself is
// played against.
//
// Some scenarios are marked as permitted: the operator's own grant allows what
// the attacker wants. They must succeed, or the suite would prove nothing but a
// weak attacker.
package attack
