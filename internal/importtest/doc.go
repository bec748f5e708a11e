// Package importtest holds the test that keeps the packages' direction: which
// of our packages may import which, and which of them alone know a library
// (DESIGN, section 3). It has no code to call.
package importtest
