package task

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

//go:embed zones.txt
var zoneList string

// zoneNames are the names of the IANA database, to suggest one from.
var zoneNames = sync.OnceValue(func() []string { return strings.Fields(zoneList) })

// zones keeps loaded locations: loading one reads files. It can hold no more
// than there are zones.
var zones sync.Map

// LoadZone returns the zone of an IANA name. The error says what is wrong with the
// name and which one may be meant; it does not repeat the name.
func LoadZone(name string) (*time.Location, error) {
	if zone, ok := zones.Load(name); ok {
		return zone.(*time.Location), nil
	}
	if name == "" || name == "Local" {
		return nil, errors.New("expected an IANA name such as Europe/Berlin; the host's own zone plays no part")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		if near := nearestZone(name); near != "" {
			return nil, fmt.Errorf("unknown zone; did you mean %s?", near)
		}
		return nil, errors.New("unknown zone; expected an IANA name such as Europe/Berlin")
	}
	zones.Store(name, zone)
	return zone, nil
}

// nearestZone is the IANA name most like a wrong one: the same but for case or
// spaces, the same city, or a few letters off; empty if none is.
func nearestZone(name string) string {
	want := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(name), " ", "_"))
	if len(want) > 64 {
		return ""
	}
	best, bestDistance := "", 3
	for _, zone := range zoneNames() {
		low := strings.ToLower(zone)
		city := low[strings.LastIndexByte(low, '/')+1:]
		if low == want || city == want {
			return zone
		}
		if d := distance(want, low); d < bestDistance {
			best, bestDistance = zone, d
		}
		if d := distance(want, city); d < bestDistance && len(city) > 4 {
			best, bestDistance = zone, d
		}
	}
	return best
}

// distance is the number of single-letter edits between two words.
func distance(a, b string) int {
	previous := make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := previous[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, previous[j+1]+1, row[j]+1)
		}
		previous = row
	}
	return previous[len(b)]
}
