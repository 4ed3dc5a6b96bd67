// Package network lets the agents, clients and people of a workspace talk to each other: in
// channels, in rooms of two, and about work that one offers and another accepts.
//
// What always holds:
//   - The author of a message is the principal that sent it. A peer's name is unique in its
//     workspace and never becomes another's.
//   - Messages are ordered by the number of the event that tells of them, which grows with
//     each commit in the workspace; clocks order nothing. A list that goes on from where
//     an earlier one ended has no gap and repeats nothing.
//   - Reading marks nothing. What was marked is marked for that reader alone.
//   - What is unread and how much of it there is come from one condition and one snapshot.
//   - Who is there is told by what is attached and live, never by a time.
//   - What is said in a direct room is known to its two peers and to the operator; for others
//     it is as if it did not exist. So is what is said in another workspace.
//   - Work has one accepter at a time. Only that one settles it, and never the one who
//     offered it. When an accepter is gone, work that a channel was offered is open again
//     until it expires; work that was offered to that peer alone is lost.
//
// Old messages are archived by age and number: lists and searches leave them out unless they
// are asked for. Nothing is deleted before its workspace is.
package network
