package task

// Touched is what one call read and changed in the store of a builtin connector, by
// entry: a file's or directory's absolute path without links, PATH#KEY for a note of
// the memory file PATH, PATH# for any of its notes. A server of ours reports it
// under TouchedMeta beside its result.
type Touched struct {
	Read []string `json:"read,omitempty"`
	// Wrote are entries as a whole: nothing of what was there is left.
	Wrote []string `json:"wrote,omitempty"`
	// Added are entries of which something older may be left.
	Added []string `json:"added,omitempty"`
	Moved []Move   `json:"moved,omitempty"`
	Gone  []string `json:"gone,omitempty"`
}

// Move is an entry that has another name now, with all that lies below it.
type Move struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// TouchedMeta is the field of a result's _meta that holds a Touched.
const TouchedMeta = "runnerd/touched"

// Changed tells whether the call changed anything.
func (t Touched) Changed() bool {
	return len(t.Wrote)+len(t.Added)+len(t.Moved)+len(t.Gone) > 0
}
