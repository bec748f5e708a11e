package policy

import (
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// hostRule is what `host` may say: a name or an address, or with a wildcard every
// name below one; with a port that one alone.
type hostRule struct {
	name string
	wild bool
	port int // 0: any
}

// parseHost reads the one form of `host` that load and match share.
func parseHost(text string) (h hostRule, ok bool) {
	name := strings.ToLower(text)
	if head, port, found := cutPort(name); found {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 || port != strconv.Itoa(n) {
			return h, false
		}
		name, h.port = head, n
	}
	if inner, bracket := strings.CutPrefix(name, "["); bracket {
		if name, ok = strings.CutSuffix(inner, "]"); !ok || !strings.Contains(name, ":") {
			return h, false
		}
	}
	h.name, h.wild = strings.CutPrefix(name, "*.")
	return h, !oddHost(h.name) && !(h.wild && strings.Contains(h.name, ":"))
}

func cutPort(host string) (name, port string, found bool) {
	i := strings.LastIndexByte(host, ':')
	if i < 0 || strings.Count(host, ":") > 1 && !strings.Contains(host, "]:") {
		return "", "", false
	}
	return host[:i], host[i+1:], true
}

// testHost takes an http or https URL. A port counts only where the condition
// names one; a URL without one has its scheme's.
func testHost(want string, value any) verdict {
	rule, understood := parseHost(want)
	text, ok := value.(string)
	if !understood || !ok || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '\\' || r > unicode.MaxASCII }) {
		return odd
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Hostname() == "" {
		return odd
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	port, err := portOf(u)
	if oddHost(host) || err != nil {
		return odd
	}
	switch {
	case rule.port != 0 && rule.port != port:
		return no
	case rule.wild:
		return is(strings.HasSuffix(host, "."+rule.name))
	}
	return is(host == rule.name)
}

func portOf(u *url.URL) (int, error) {
	switch {
	case u.Port() != "":
		return strconv.Atoi(u.Port())
	case u.Scheme == "https":
		return 443, nil
	}
	return 80, nil
}

// oddHost tells whether readers of URLs differ about what a host is: one with
// signs that no host name has (decoded from "%2F" in a foreign alphabet, or "," and
// ";", at which some readers stop), and numbers that some take for an address, such
// as 2852039166 or 0xa9fea9fe for 169.254.169.254. An address is one in its usual
// spelling only.
func oddHost(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.String() != host || addr.Is4In6()
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	return !hostName.MatchString(host) || numeric.MatchString(last)
}

var (
	hostName = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)
	numeric  = regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`)
)
