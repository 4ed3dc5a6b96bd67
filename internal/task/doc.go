// Package task keeps the work of each workspace as a graph of tasks: what there is to do,
// what must be done first, who works on it and what came of it.
//
// What always holds:
//
//   - An open task that nobody works on is blocked, waiting_human or ready. Which of them
//     follows from its dependencies and needs_human alone, and is written in the
//     transaction that changes one of these, so that reading needs no graph.
//   - Neither dependencies nor parents form a cycle.
//   - A claim has one holder, a number (the fence) that no other claim of the task ever
//     has, and one open run. All three end together.
//   - Each change of a task is one row of the event log, in the same transaction, and
//     raises its version by one. That a lease lasts longer is no change.
//   - Writers of one workspace take turns, on both engines. What a change has read is
//     still so when it is written.
//
// A claim that is not renewed in time ends. Sweep ends such claims soon; each change looks
// for them first, so nothing depends on how soon.
//
// The package starts no agents and knows no sessions.
package task
