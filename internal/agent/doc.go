// Package agent runs one agent CLI and speaks the Agent Client Protocol with it: JSON-RPC
// on its standard input and output, a message a line. It knows no tables: what arrives is
// handed to a Handler as it came.
//
// # A life
//
// Start makes the process, Open shakes hands and makes or loads the agent's own session,
// Prompt runs a turn, Stop ends everything. The process is a shim that runs the agent, so
// that nothing an agent started outlives it or the daemon.
//
// # What always holds
//
//   - Updates are handed over one by one, in the order in which they were written, and
//     before the answer that ends their turn. While one is handed over nothing is read:
//     an agent that is faster than its journal waits.
//   - Whatever the agent asks for is answered: a permission by the Handler, anything else
//     with -32601 at once. No file and no terminal is offered to it.
//   - Everything ends in bounded time, also when an agent hangs, closes its pipes, ignores
//     signals or dies; who waits for it is told how it ended and what it complained about.
//   - Memory is bounded by the longest line that is accepted, whatever is written.
//
// What agents do differently is absorbed here: modes and models by configuration options
// or by methods of their own, sessions that can be loaded, resumed or neither, answers
// that leave out what the protocol asks for.
package agent
