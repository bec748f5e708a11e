package control

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// TokenHeader carries the token of the state directory.
const TokenHeader = "X-Runnerd-Token"

const (
	tokenFile  = "control.token"
	tokenBytes = 32
)

// EnsureToken answers the token of a state directory: who can read its file has
// every right in user mode. The file holds 32 random bytes in hex and is readable by
// its owner alone; one that is not, or that holds anything else, is replaced, as it
// may be known.
func EnsureToken(stateDir string) (string, error) {
	token, err := ReadToken(stateDir)
	if err == nil {
		return token, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errToken) {
		return "", err
	}
	random := make([]byte, tokenBytes)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	token = hex.EncodeToString(random)
	if err := writeToken(stateDir, token); err != nil {
		return "", fmt.Errorf("write token: %w", err)
	}
	return token, nil
}

// writeToken puts the file in place at once, so that nobody reads half a token.
func writeToken(stateDir, token string) error {
	f, err := os.CreateTemp(stateDir, tokenFile+".*") // 0600
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, token+"\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(stateDir, tokenFile))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// errToken says that the file is no sound token.
var errToken = errors.New("not a token that only its owner can read")

// ReadToken reads the token that EnsureToken wrote. A client calls it before a
// request that needs it; the error is fs.ErrNotExist where no daemon in user mode
// has made one, and fs.ErrPermission for other users.
func ReadToken(stateDir string) (string, error) {
	path := filepath.Join(stateDir, tokenFile)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return "", fmt.Errorf("read %s: it is a link: %w", path, errToken)
	}
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("read %s: mode %s: %w", path, info.Mode(), errToken)
	}
	data, err := io.ReadAll(io.LimitReader(f, 2*tokenBytes+2))
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	if len(data) != 2*tokenBytes+1 || data[2*tokenBytes] != '\n' {
		return "", fmt.Errorf("read %s: %w", path, errToken)
	}
	token := string(data[:2*tokenBytes])
	if raw, err := hex.DecodeString(token); err != nil || len(raw) != tokenBytes {
		return "", fmt.Errorf("read %s: %w", path, errToken)
	}
	return token, nil
}

// bears tells whether what a request carries is the token.
func bears(token, given string) bool {
	return token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(given)) == 1
}
