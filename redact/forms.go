package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf16"
)

// forms lists what a secret looks like in the texts that programs write, beside
// its codedForms. Some may be equal to each other or shorter than a pattern may be.
func forms(value string) []string {
	var all []string
	for _, v := range bases(value) {
		all = append(all, v)
		all = append(all, jsonForms(v)...)
		all = append(all, urlForms(v)...)
		all = append(all, html.EscapeString(v))
	}
	return append(all, keyLines(value)...)
}

// bases are a value and, without a credential file's last newline, itself.
func bases(value string) []string {
	if trimmed := strings.TrimSpace(value); len(trimmed) >= MinLength && trimmed != value {
		return []string{value, trimmed}
	}
	return []string{value}
}

// codedForms are those that look like no words: base64 and hex.
func codedForms(value string) []string {
	var all []string
	for _, v := range bases(value) {
		h := hex.EncodeToString([]byte(v))
		all = append(append(all, base64Forms(v)...), h, strings.ToUpper(h))
	}
	return all
}

// minKeyLine is the length from which one line of a secret of several counts as
// a secret itself.
const minKeyLine = 32

// keyLines are the lines of a key in PEM or the like, which logs tear apart.
func keyLines(value string) []string {
	var lines []string
	if !strings.Contains(value, "\n") {
		return nil
	}
	for line := range strings.Lines(value) {
		line = strings.TrimSpace(line)
		if len(line) >= minKeyLine && !strings.ContainsAny(line, " \t") {
			lines = append(lines, line)
		}
	}
	return lines
}

// jsonForms are the inside of a JSON string: with and without the escapes for
// HTML, with escaped slashes, in ASCII alone, and escaped a second time, as in
// arguments that are a string of JSON themselves.
func jsonForms(v string) []string {
	once := jsonStrings(v)
	all := once
	for _, s := range once {
		all = append(all, strings.ReplaceAll(s, "/", `\/`))
		all = append(all, jsonStrings(s)...)
	}
	return all
}

func jsonStrings(v string) []string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // a string always has a form in JSON
	plain := inside(strings.TrimSuffix(b.String(), "\n"))
	escaped, _ := json.Marshal(v)
	ascii := asciiOnly(plain)
	return []string{plain, inside(string(escaped)), ascii, upperEscapes(ascii)}
}

func inside(quoted string) string { return quoted[1 : len(quoted)-1] }

func asciiOnly(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

var unicodeEscape = regexp.MustCompile(`\\u[0-9a-f]{4}`)

func upperEscapes(s string) string {
	return unicodeEscape.ReplaceAllStringFunc(s, func(e string) string { return `\u` + strings.ToUpper(e[2:]) })
}

// urlForms are percent-encodings: libraries differ in what they leave as it is
// and in the case of the digits.
func urlForms(v string) []string {
	upper := []string{
		url.QueryEscape(v), url.PathEscape(v),
		percent(v, "-_.~"), percent(v, "-_.~/"), percent(v, "-_.!~*'()"), percent(v, "*-._"),
	}
	all := upper
	for _, s := range upper {
		all = append(all, lowerDigits(s))
	}
	return all
}

func percent(v, keep string) string {
	var b strings.Builder
	for _, c := range []byte(v) {
		alnum := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if alnum || strings.IndexByte(keep, c) >= 0 {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

var percentEscape = regexp.MustCompile(`%[0-9A-F]{2}`)

func lowerDigits(s string) string { return percentEscape.ReplaceAllStringFunc(s, strings.ToLower) }

// base64Forms are the characters that the value alone decides, at each of the
// three places where it can begin in what was encoded.
func base64Forms(v string) []string {
	var all []string
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := enc.EncodeToString(append(make([]byte, before), v...))
			from := (before*8 + 5) / 6
			to := (before + len(v)) * 8 / 6
			all = append(all, text[from:to])
		}
	}
	return all
}
