package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"runnerd/redact"
)

func wrap(s string, width int, by string) string {
	var parts []string
	for len(s) > width {
		parts, s = append(parts, s[:width]), s[width:]
	}
	return strings.Join(append(parts, s), by)
}

// However a form is wrapped, escaped or aligned, nothing of the secret is left.
func TestWrappedForms(t *testing.T) {
	for _, secret := range []string{"sk-proj-0123456789abcdefABCDEF", "hunter22", `p@ss"w/ö<1> &+%and more of it`} {
		s := set(redact.Secret{Name: "x", Value: secret})
		check := func(name, text string) {
			t.Helper()
			got := s.Text(text)
			if !strings.Contains(got, "[redacted:x]") || s.Find(text) != "x" || string(s.Bytes([]byte(text))) != got {
				t.Errorf("I12 %s of %q survives: %q", name, secret, got)
			}
			if s.Text(got) != got {
				t.Errorf("I12 %s is redacted twice: %q", name, got)
			}
		}
		for at := range 3 {
			plain := strings.Repeat("u", at) + secret + strings.Repeat("v", 3-at)
			for name, enc := range map[string]*base64.Encoding{"std": base64.StdEncoding, "url": base64.URLEncoding, "raw": base64.RawStdEncoding, "rawurl": base64.RawURLEncoding} {
				for width := 1; width <= 80; width++ {
					for by, mark := range map[string]string{"LF": "\n", "CRLF": "\r\n", "indented": "\n    ", "escaped": `\n`, "escaped CRLF": `\r\n`, "blank": " ", "percent": "%0A", "quoted-printable": "=\n"} {
						check(fmt.Sprintf("base64 %s at %d by %d %s", name, at, width, by), "a "+wrap(enc.EncodeToString([]byte(plain)), width, mark)+" b")
					}
				}
			}
		}
		for width := 1; width < 40; width++ {
			check("hex", wrap(hex.EncodeToString([]byte(secret)), width, "\n"))
		}
		full, ascii, twice := "", "", ""
		for _, b := range []byte(secret) {
			full += fmt.Sprintf("%%%02x", b)
			ascii += fmt.Sprintf(`\x%02X`, b)
		}
		for _, r := range secret {
			twice += fmt.Sprintf(`\u%04X`, r)
		}
		check("percent, each byte", full)
		check(`\x, each byte`, ascii)
		check(`\u, each letter`, twice)
		encoded, _ := json.Marshal(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("z", 30)+secret)) + "\n")
		check("base64 in JSON", string(encoded))
		check("percent in base64's signs", strings.NewReplacer("+", "%2B", "/", "%2F", "=", "%3D").Replace(base64.StdEncoding.EncodeToString([]byte(secret))))
	}
}

// What only looks like it stays as it is.
func TestWrappedNothing(t *testing.T) {
	s := set(redact.Secret{Name: "x", Value: "sunshine"})
	for _, text := range []string{"the sun shine", "sun\nshine", "100% sun %zz \\u12 \\xg \\", "%", "\\", "\\u00", "=\n", "a\tb\r\nc"} {
		if got := s.Text(text); got != text || s.Find(text) != "" {
			t.Errorf("%q became %q", text, got)
		}
	}
	if got := s.Text("sun%73hine and \\u0073unshine, %41"); got != "[redacted:x] and [redacted:x], %41" {
		t.Errorf("%q", got)
	}
}
