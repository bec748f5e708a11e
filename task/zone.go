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
	want := strings.ReplaceAll(strings.TrimSpace(name), " ", "_")
	zoneOf := map[string]string{}
	var candidates []string
	for _, zone := range zoneNames() {
		city := zone[strings.LastIndexByte(zone, '/')+1:]
		if strings.EqualFold(zone, want) || strings.EqualFold(city, want) {
			return zone
		}
		candidates = append(candidates, zone)
		if zoneOf[zone] = zone; len(city) > 4 && zoneOf[city] == "" {
			zoneOf[city] = zone
			candidates = append(candidates, city)
		}
	}
	return zoneOf[Nearest(want, candidates)]
}
