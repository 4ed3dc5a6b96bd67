package env

import "github.com/urfave/cli/v3"

// textFlag is a flag that takes a text, whose help says in a word what the text is: all
// values of the request go in as text, and "string" would be said of numbers too.
type textFlag struct {
	*cli.StringFlag

	word string
}

// TypeName returns the word.
func (f textFlag) TypeName() string { return f.word }

// String returns the flag as the help shows it.
func (f textFlag) String() string { return cli.FlagStringer(f) }

// textsFlag is a textFlag that can be repeated.
type textsFlag struct {
	*cli.StringSliceFlag

	word string
}

// TypeName returns the word.
func (f textsFlag) TypeName() string { return f.word }

// String returns the flag as the help shows it.
func (f textsFlag) String() string { return cli.FlagStringer(f) }
