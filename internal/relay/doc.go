// Package relay serves the tools of one workspace to an MCP client over stdio, or to several
// over HTTP. It is the only package that speaks MCP.
//
// A relay attaches to the daemon before it serves anything, and stays attached: when the
// daemon goes away it comes back to the same workspace, under the same facade if that is
// less than half a minute later. What is served is settled by the first attachment.
//
// # One call
//
// A line from the client, or the body of its request, is checked by the scanner, goes through the SDK to a tool of the
// table in gen/mcptool, and from there takes the same way for every tool: arguments to
// request, the workspace set, request to the daemon, answer to JSON. All that is known here
// of single tools is which ones to begin with.
//
// Refusals are results with isError, one sentence for the model, and the machine's part
// under _meta["compozy.dev/error"]. JSON-RPC errors are for messages that are malformed,
// and for methods and tools that are not there.
//
// # How it ends
//
// The caller passes a context that ends at SIGINT or SIGTERM, and gives up catching those
// signals then, so that a second one ends the process at once. Serve returns
//
//   - when the input ends: after the open calls are answered, at most 5 s later;
//   - when the context ends: input is no longer read, open calls have 250 ms to end by
//     themselves and are cancelled then; it returns within 400 ms in any case;
//   - when the output breaks, or a line is longer than 16 MiB, with an error.
//
// Calls that are cancelled this way are still answered, with the code "cancelled". The
// caller has to see to it that a broken pipe is an error and no signal: Go ends a process
// that writes to a broken standard output, so out is to be another descriptor for it.
package relay
