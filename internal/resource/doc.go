// Package resource keeps what agents are configured with, and documents.
//
// What always holds:
//   - A name is unique among the resources of its kind in a workspace. Every change of a
//     text or a name is a version, which has an author and is kept; of each resource the
//     last 200 are.
//   - An agent and an MCP server say what is executed. Only the operator writes such a
//     resource, on the command line: whatever a facade or a session may do elsewhere, it
//     reads them and comments on them.
//   - Files of the workspace that agents read by themselves, such as AGENTS.md, are listed
//     and read where they lie, and never copied or written. No symbolic link leads out of
//     the workspace.
//   - Record, versions and index change in one transaction.
//   - A resource of another workspace is answered exactly as one that does not exist.
//
// The texts of agents and MCP servers are checked by a function of the daemon's, which
// also starts them: this package does not know what they mean. The database only finds
// candidates for a search; package search ranks them, so both engines answer alike.
package resource
