// Package daemon runs the Host API: one process for each home, listening on one socket.
//
// Every call, unary or streaming, passes through the same list of steps (chain.go) under
// the rule of its method (policy.go). The services themselves are other packages; Run
// reads top to bottom as the list of what exists. This package holds no business rules.
package daemon
