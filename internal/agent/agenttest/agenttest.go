// Package agenttest is an agent for tests: a program that speaks the Agent Client Protocol
// and does what a prompt says, line by line. It runs as a process of its own, below the
// real shim, from the test's own executable.
//
// A test's package has
//
//	func TestMain(m *testing.M) { agenttest.Main(m) }
//
// and uses Shim and Command for an agent.Spec. What a line of a prompt does:
//
//	SAY text               a message chunk
//	THINK text             a thought chunk
//	BURST n                as many message chunks, "0 ", "1 " and so on, as fast as possible
//	FILL n                 one message chunk of n bytes
//	TOOL title|kind|{...}  a tool call with this raw input, and its completion
//	EDIT path|text         writes a file below the working directory, with a diff; \n is a line end
//	ASK title|kind|{...}   asks for a permission, and says "GOT <option>" or "GOT cancelled";
//	                       the options are allow_once, allow_always, reject_once, reject_always
//	RUN command            runs sh -c in the working directory, and says what it wrote
//	PLAN a;b;c             a plan of these steps
//	USAGE in out usd       tokens of the turn, and what the session cost in addition
//	SERVERS                says the MCP servers that it was given, as JSON
//	CALL server tool {...} starts that MCP server, calls the tool, and says the result's text
//	UPDATE {...}           this update as it is, of whatever kind
//	REQUEST method         makes this request, and says "GOT result" or "GOT <code>"
//	SIDE line              does this line at the side; the turn ends when both have
//	WAIT                   waits for the turn to be cancelled
//	STOP reason            ends the turn with this stop reason
//	FAIL text              answers the prompt with an error
//	EXIT code              dies at once
//	STDERR text            writes a line to standard error
//	CRASHLINE              writes a line that is no JSON
//	HANG                   never answers the prompt; no line of it hears of a cancellation
//
// Any other line is said as it is. A turn that is cancelled ends at the next line, with
// the stop reason cancelled.
//
// The flags of Command:
//
//	--load=false           does not say that it can load sessions
//	--resume               says that it can resume sessions
//	--no-usage             tells no usage; otherwise a turn takes 10 tokens in and 5 out
//	--ignore-eof           does not exit when its input ends
//	--ignore-term          ignores SIGTERM
//	--start=hang           never answers initialize
//	--start=exit           complains and exits with code 3 instead of answering
//	--start=stderr10mb     writes 10 MB to standard error and exits with code 4
//	--start=version2       answers that it speaks version 2 of the protocol
//	--modes=claude|codex|gemini|none
//	                       the modes and models, and the way to set them, of one of these;
//	                       claude where it is not given
//	--refuse-mode          refuses to change its mode
//	--login                wants KEY in its environment, and to be told to use it
//	--history FILE         keeps conversations there, so that they can be loaded
package agenttest

import (
	"os"
	"syscall"
	"testing"

	"compozy.dev/compozy/internal/agent"
)

// The first argument of this executable where it is not to run tests.
const (
	argShim   = "shim"
	argFilter = "filter"
	argAgent  = "scripted-agent"
)

// Main runs the tests of a package, or what Shim and Command say in their place, or the
// filter of an MCP server as a daemon of this executable starts it. It does
// not return.
func Main(m *testing.M) {
	var code int
	switch {
	case len(os.Args) > 1 && os.Args[1] == argShim:
		code = agent.RunShim(os.Args[2:])
	case len(os.Args) > 1 && os.Args[1] == argFilter:
		code = agent.RunFilter(os.Args[2:], os.Stdin, os.Stdout, os.Stderr) //nolint:forbidigo // as below
	case len(os.Args) > 1 && os.Args[1] == argAgent:
		code = run(os.Args[2:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}) //nolint:forbidigo // it is the whole program then
	default:
		os.Exit(m.Run()) //nolint:forbidigo // it is TestMain
	}
	// Not os.Exit: with the race detector that takes a second, which no program does.
	syscall.Exit(code)
}

// Shim returns the command line of the shim, for Spec.Shim.
func Shim() []string { return []string{executable(), argShim} }

// Command returns the command line of the scripted agent, for Spec.Command.
func Command(flags ...string) []string {
	return append([]string{executable(), argAgent}, flags...)
}

func executable() string {
	path, err := os.Executable()
	if err != nil {
		panic(err) // there is no test without it
	}
	return path
}
