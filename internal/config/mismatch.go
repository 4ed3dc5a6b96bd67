package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// mismatch is what the library says of a value of the wrong type. It names the fields and
// types of this program, which say nothing to people.
var mismatch = regexp.MustCompile(`cannot (?:decode TOML (.+) into struct field \S+ of type (\S+)|store an? (.+) in an? (\S+))$`)

// inOurWords returns what is wrong with a file as the person who wrote it can read it.
func inOurWords(e *toml.DecodeError) string {
	text := strings.TrimPrefix(e.Error(), "toml: ")
	m := mismatch.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	key := strings.Join(e.Key(), ".")
	if key == "" {
		key = "this value"
	}
	return fmt.Sprintf("%s is to be %s, and not %s", key, wanted(m[2]+m[4]), found(m[1]+m[3]))
}

// wanted returns what a type of this program is called in a file.
func wanted(name string) string {
	switch {
	case name == "string":
		return "text in quotes"
	case name == "bool":
		return "true or false"
	case strings.HasPrefix(name, "int"):
		return "a whole number"
	case strings.HasPrefix(name, "float"):
		return "a number"
	case strings.HasPrefix(name, "[]"), name == "slice":
		return "a list in brackets"
	default:
		return "a table"
	}
}

// found returns what a type of TOML is called.
func found(name string) string {
	switch name {
	case "string":
		return "text"
	case "integer":
		return "a whole number"
	case "float":
		return "a number with a fraction"
	case "boolean":
		return "true or false"
	case "array":
		return "a list"
	case "array table":
		return "a list of tables"
	default:
		return "a " + name // a table, a local date, ...
	}
}
