package config

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A duration is written in Go's style plus d for days of 24 hours: "90s",
// "1h30m", "7d". The bare number 0 is also read.
type duration time.Duration

const (
	durationPattern  = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d))+$`
	expectedDuration = `a duration such as "30s", "15m", "12h" or "7d"`
)

var durationPart = regexp.MustCompile(`([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h|d)`)
var durationWhole = regexp.MustCompile(durationPattern)

var durationUnits = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond,
	"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

// ParseDuration reads a duration as config files write it: Go's style without a
// sign, plus d for days of 24 hours.
func ParseDuration(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	if !durationWhole.MatchString(s) {
		return 0, fmt.Errorf("duration %s: want %s", quoted(s), expectedDuration)
	}
	total := 0.0
	for _, part := range durationPart.FindAllStringSubmatch(s, -1) {
		n, err := strconv.ParseFloat(part[1], 64)
		if err != nil {
			return 0, fmt.Errorf("duration %s: %w", quoted(s), err)
		}
		total += n * float64(durationUnits[part[2]])
	}
	if total > math.MaxInt64/2 {
		return 0, fmt.Errorf("duration %s: longer than 146 years", quoted(s))
	}
	return time.Duration(math.Round(total)), nil
}

func (d *duration) UnmarshalJSON(data []byte) error {
	var s string
	if string(data) == "0" {
		s = "0"
	} else if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	v, err := ParseDuration(s)
	if err != nil {
		v = 1 << 62 // the schema has read it: it is only too long
	}
	*d = duration(v)
	return nil
}

// A size is a number of bytes: 1048576, "500MB" (powers of 1000) or "512MiB"
// (powers of 1024).
type size int64

const (
	sizePattern  = `^[0-9]+(\.[0-9]+)? ?(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?$`
	expectedSize = `a size such as "500MB" or "2GiB"`
)

var sizeUnits = map[string]float64{
	"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

func (z *size) UnmarshalJSON(data []byte) error {
	s := strings.Trim(string(data), `"`)
	digits := strings.TrimRight(s, "BkKMGTi ")
	n, err := strconv.ParseFloat(digits, 64)
	unit, ok := sizeUnits[strings.TrimSpace(s[len(digits):])]
	if err != nil || !ok || n < 0 {
		return fmt.Errorf("size %s: want %s", quoted(s), expectedSize)
	}
	*z = size(min(n*unit, 1<<60))
	return nil
}
