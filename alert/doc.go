// Package alert tells people of troubles: once when one begins and once when it
// is over. cmd/runnerd raises and clears them on a Board as it learns of them and
// runs the Board beside everything else.
//
// It promises that Raise, Clear and Settle never block and never fail, that what
// was told is remembered across a restart, that a trouble is told even if the
// database that should remember it is the trouble, and that no flood reaches
// anybody: beyond a few notices at once the rest comes as one.
package alert
