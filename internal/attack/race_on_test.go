//go:build race

package attack

// sample is the share of scenarios that is played: one in so many. The race
// detector makes each ten times as slow and learns nothing from the rest;
// `make test` plays all of them without it.
const sample = 4
