// Package memory keeps what was learned in a workspace, and finds it again.
//
// What always holds:
//   - The same text is one entry. Texts are the same when they differ in nothing but
//     surrounding blanks and Unicode composition, and their entries are of one kind and
//     for one agent, or all of them for the whole workspace.
//   - Entry and index change in one transaction: what was stored is found at once, and
//     what was forgotten, archived, dismissed or superseded is not found any more.
//   - The author of an entry is the principal that stored it. An agent's entry is a
//     candidate until a person or the operator's own client approves it, and no agent
//     changes what an entry of somebody else says.
//   - An entry of another workspace is answered exactly as one that does not exist.
//
// The database only finds candidates; package search ranks them, so both engines answer
// alike. What an entry says it is about is kept as text: memory does not look whether
// such a task, session or file exists.
package memory
