// Package session runs coding agents. A session is one agent program, spoken to over the
// agent client protocol, with a transcript, a place to work in and what it asks.
//
// What always holds:
//
//   - One goroutine, the runner, owns each live session and is the only one that speaks to
//     its agent. Calls store what they want and wake it.
//   - What an agent sends is in the journal, as it was sent and once, before anybody is
//     shown it. Turns, plan and cost are derived from the journal.
//   - An input that was acknowledged is stored. It is delivered at most once: one that was
//     with the agent when everything went away is failed, never sent again unasked.
//   - A question is settled exactly once, and never by silence: when its deadline passes a
//     reject option is chosen.
//   - Each change of state is a row of the event log, in the same transaction.
//   - After a start of the daemon no session is live whose agent is not running.
//   - Nothing of a worktree is removed that is not saved, and no branch is taken over.
//
// The package opens no sockets and knows no relays; who calls is in the context.
package session
