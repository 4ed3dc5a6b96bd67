package loopback

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
)

const (
	// minToken is the least length of a token, and minLetters how many different characters
	// it has at least. 22 random letters and digits are as hard to guess as a 128-bit key.
	minToken   = 22
	minLetters = 8
)

// Token is the secret that requests bear. It prints as nothing that tells of it.
type Token struct{ sum [sha256.Size]byte }

// ParseToken returns the token that a variable holds. trimmed says that a line end was taken
// off, as an echo leaves it. The error says what is wrong with the value and never quotes it.
func ParseToken(value string) (t Token, trimmed bool, err error) {
	token := strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
	switch {
	case strings.TrimSpace(token) == "":
		return Token{}, false, errors.New("is empty")
	case strings.ContainsFunc(token, func(c rune) bool { return !tokenCharacter(c) }):
		return Token{}, false, errors.New("has a character that no token has: it consists of letters, digits and - . _ ~ + / =, without blanks")
	case len(token) < minToken:
		return Token{}, false, fmt.Errorf("is shorter than %d characters, so it could be guessed", minToken)
	case distinct(token) < minLetters:
		return Token{}, false, fmt.Errorf("has fewer than %d different characters, so it could be guessed", minLetters)
	}
	return Token{sum: sha256.Sum256([]byte(token))}, token != value, nil
}

// tokenCharacter reports whether a bearer token can have a character (RFC 6750, section 2.1).
func tokenCharacter(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._~+/=", c)
}

func distinct(s string) int {
	seen := map[rune]bool{}
	for _, c := range s {
		seen[c] = true
	}
	return len(seen)
}

// is reports whether text is the token, in a time that does not tell how much of it is.
func (t Token) is(text string) bool {
	sum := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(t.sum[:], sum[:]) == 1
}

// String returns what may be printed.
func (Token) String() string { return "(token)" }

// GoString returns what may be printed.
func (Token) GoString() string { return "(token)" }
