// Package env is what a command may touch: its input and outputs, the daemon, and the
// workspace that it is about. It also turns published methods into commands, and answers
// into tables or JSON, so that every command takes flags and prints in the same way.
package env

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"

	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/config"
)

// Env is what the commands of one process share. It is not safe for concurrent use.
type Env struct {
	// Args is the command line, the program first.
	Args []string
	// In is the standard input.
	In io.ReadCloser
	// Terminal says whether In is a terminal.
	Terminal bool
	// Out takes what a command prints.
	Out io.Writer
	// Err takes what is not part of the result.
	Err io.Writer
	// TakeOut returns the standard output for a protocol. From then on whatever else is
	// written there goes to the standard error.
	TakeOut func() (*os.File, error)
	// Width is that of the terminal behind Out, in columns; 0: it is no terminal.
	Width int
	// Color says whether Out shows colours.
	Color bool
	// Pager is the command line that shows long texts on a terminal; empty: none.
	Pager string
	// Directory is the absolute working directory; empty when it is gone.
	Directory string
	// Home is where the daemon keeps everything.
	Home config.Home
	// OwnHome says whether COMPOZY_HOME names it.
	OwnHome bool
	// Version is that of this program.
	Version string
	// LogLevel is what COMPOZY_LOG says; empty: nothing.
	LogLevel string
	// Lookup reads a variable that the command line names.
	Lookup func(name string) (string, bool)
	// Dial returns a connection to the daemon that listens at a socket.
	Dial func(socket string) (*grpc.ClientConn, error)

	// Variable is what COMPOZY_WORKSPACE says.
	Variable string
	// Reference is what --workspace says.
	Reference string
	// Format is what --output says: FormatTable or FormatJSON.
	Format string

	conn *grpc.ClientConn
}

// What --output can say.
const (
	FormatTable = "table"
	FormatJSON  = "json"
)

// Conn returns the connection to the home's daemon. Nothing is sent before the first
// call. It stays the environment's to close.
func (e *Env) Conn() (*grpc.ClientConn, error) {
	if e.conn != nil {
		return e.conn, nil
	}
	conn, err := e.Dial(e.Home.Socket())
	if err != nil {
		return nil, fmt.Errorf("prepare connection: %w", err)
	}
	e.conn = conn
	return conn, nil
}

// Close closes the connection to the daemon, if there is one.
func (e *Env) Close() error {
	if e.conn == nil {
		return nil
	}
	return e.conn.Close()
}

// Selector says which workspace is meant: the first of --workspace, COMPOZY_WORKSPACE and
// the working directory that is there.
func (e *Env) Selector() *workspacev1.Selector {
	sel := &workspacev1.Selector{Directory: e.Directory}
	switch {
	case e.Reference != "":
		sel.Reference, sel.Source = e.Reference, "--workspace"
	case e.Variable != "":
		sel.Reference, sel.Source = e.Variable, config.WorkspaceVariable
	}
	return sel
}

// Resolve returns the one workspace that is meant.
func (e *Env) Resolve(ctx context.Context) (*workspacev1.Workspace, error) {
	conn, err := e.Conn()
	if err != nil {
		return nil, err
	}
	resp, err := workspacev1.NewWorkspaceServiceClient(conn).Resolve(ctx, &workspacev1.ResolveRequest{Selector: e.Selector()})
	return resp.GetWorkspace(), err
}

// Path returns a path from the command line as an absolute one.
func (e *Env) Path(path string) (string, error) {
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	if e.Directory == "" {
		return "", Usage("%q is relative and the working directory is gone; give an absolute path", path)
	}
	return filepath.Join(e.Directory, path), nil
}

// UsageError is a command line that can never succeed as it is.
type UsageError struct{ message string }

// Usage returns a UsageError. The message is formatted as by fmt.Sprintf.
func Usage(format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...)}
}

// Error returns what is wrong.
func (e *UsageError) Error() string { return e.message }

// OneOf returns the validator of a flag that takes one of some words.
func OneOf(words ...string) func(string) error {
	return func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("use %s", strings.Join(words, " or "))
		}
		return nil
	}
}
