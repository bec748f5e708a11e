//go:build !race

package attack

const sample = 1
