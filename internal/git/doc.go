// Package git is every git command that the daemon runs: the worktree that a session gets,
// the diff of its work, saving, publishing and applying it.
//
// A session's worktree belongs to its agent, and so, in effect, does the configuration of
// the repository: git runs what both say. So nothing here reads that configuration. Each
// operation looks at the repository through a view: a directory with links to the
// repository's objects and refs, and a configuration that holds only the keys listed in
// view.go, none of which names a program. Filters, merge drivers, credential helpers and
// ssh commands therefore come from the operator's own and the system's configuration, and
// from nowhere else. Hooks and fsmonitor are off, whoever set them; the transports allowed
// are https, http, ssh, git and local paths.
//
// What always holds: a branch or a path that exists is never taken over; nothing is pushed
// by force; a worktree is removed only when what is in it can be had again from a ref; the
// index of a person's checkout is never written; and no git command runs in a worktree
// that is not the one which was made.
//
// The functions are safe for concurrent use, but two of them that change the same worktree
// must not run at once; the caller serializes those of one session. git 2.38 or later is
// needed for Apply, 2.31 for the rest.
package git
