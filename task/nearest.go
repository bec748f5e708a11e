package task

import "strings"

// maxNearest is how long a name may be for others to be compared with it.
const maxNearest = 64

// Nearest is the candidate that a wrong name may have meant: the one fewest edits
// away, case aside (at most one for three letters, up to four for long words), the
// first of several; "" if none is near.
func Nearest(got string, candidates []string) string {
	if len(got) < 2 || len(got) > maxNearest {
		return ""
	}
	limit := min(max(2, len(got)/3), 4)
	if len(got) <= 3 {
		limit = 1
	}
	best, bestDistance := "", limit+1
	for _, c := range candidates {
		if len(c) > maxNearest {
			continue
		}
		if d := editDistance(strings.ToLower(got), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, changes and swaps of neighbours.
func editDistance(a, b string) int {
	prev2, prev, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
		prev2, prev, row = prev, row, make([]int, len(b)+1)
	}
	return prev[len(b)]
}
