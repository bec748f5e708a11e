package systemd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// maxCredential is the most that systemd itself hands over.
const maxCredential = 1 << 20

var credentialName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,254}$`)

// Credential reads one secret from the credentials directory, dir, without the
// line end that editors put there. Its errors name what to do and never hold any
// of the secret; fs.ErrNotExist is among them.
func Credential(dir, name string) (string, error) {
	if !credentialName.MatchString(name) {
		return "", fmt.Errorf("credential %q: a name is letters, digits, dots, dashes and underscores", name)
	}
	if dir == "" {
		return "", fmt.Errorf("credential %q: there is no credentials directory: add LoadCredential=%s:/PATH to the unit, or name a directory", name, name)
	}
	text, err := readCredential(filepath.Join(dir, name))
	if err != nil {
		return "", fmt.Errorf("credential %q: %w; want it as a file in %s (LoadCredential=%s:/PATH)", name, err, dir, name)
	}
	return text, nil
}

func readCredential(path string) (string, error) {
	// Not to hang on a pipe.
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCredential+1))
	if err != nil {
		return "", err
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case len(data) > maxCredential:
		return "", fmt.Errorf("larger than %d bytes", maxCredential)
	case text == "":
		return "", errors.New("the file is empty")
	case strings.ContainsAny(text, "\x00"):
		return "", errors.New("the file is not text")
	}
	return text, nil
}
