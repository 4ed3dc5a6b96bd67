// Package workspace keeps the register of workspaces, and the current one in a context.
//
// A workspace is a directory that somebody registered. Its id never changes; its name is
// unique in the home; its path is kept per node, because machines that share a database
// have it in different places. Resolving never guesses: what matches nothing or more than
// one workspace is an error that lists the candidates.
package workspace
