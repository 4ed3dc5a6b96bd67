package env

import (
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"compozy.dev/compozy/internal/fault"
)

// longestWord bounds what is read of a line that is to hold one word.
const longestWord = 100

// Typed asks a person for a word and fails unless they type exactly that, at the terminal
// that is the standard input. There it cannot be given for them: not by a flag, not by a
// pipe. The question says what the word does.
func (e *Env) Typed(word, question string) error {
	if !e.Terminal {
		return fault.New(fault.PermissionDenied, "the word %q must be typed by a person, and standard input is no terminal; run this command in one", word)
	}
	if _, err := fmt.Fprint(e.Err, question); err != nil {
		return err
	}
	typed, err := e.readLine()
	if err != nil {
		return err
	}
	if typed != word {
		return fault.New(fault.Conflict, "nothing was done: you typed %q and not %q", typed, word)
	}
	return nil
}

// Confirm asks a person whether they mean what cannot be undone, which what says. A command
// line that has --yes has answered; without a terminal nobody can be asked.
func (e *Env) Confirm(yes bool, what string) error {
	switch {
	case yes:
		return nil
	case !e.Terminal:
		return Usage("%s; repeat the command with --yes if that is what you want", what)
	default:
		return e.Typed("yes", Line(what)+". Type yes to go on: ")
	}
}

// Yes is the flag of commands that cannot be undone.
func Yes() cli.Flag {
	return &cli.BoolFlag{Name: "yes", Usage: "Do it without asking."}
}

// readLine reads a line without reading ahead.
func (e *Env) readLine() (string, error) {
	var line []byte
	for b := make([]byte, 1); len(line) < longestWord; {
		n, err := e.In.Read(b)
		if n == 1 && b[0] == '\n' || errors.Is(err, io.EOF) {
			return string(line), nil
		}
		if err != nil {
			return "", fmt.Errorf("read what is typed: %w", err)
		}
		line = append(line, b[:n]...)
	}
	return string(line), nil
}
