// Package fault holds errors with a kind. A kind says what a caller can do about
// the error; the packages that speak gRPC and MCP translate kinds, so this
// package knows neither.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what went wrong in terms a caller can act on.
type Kind int

// The kinds. The zero kind is Internal: an error nobody classified.
const (
	Internal         Kind = iota // a defect or a broken machine; details go to the log only
	InvalidArgument              // the request can never succeed as it is
	NotFound                     // the thing does not exist in this workspace
	Conflict                     // the thing exists, and its state forbids the request
	PermissionDenied             // the caller may not do this
	RateLimited                  // too many calls; RetryAfter says when to try again
	Unavailable                  // the daemon or its storage cannot answer now
	Timeout                      // the deadline passed before the answer
	OutcomeUnknown               // the request was sent, and nobody knows whether it was carried out
	ApprovalPending              // a person has to decide first
	CursorExpired                // the place in the list that the cursor names is gone
	Cancelled                    // the caller gave up
)

var words = [...]string{
	"internal", "invalid_argument", "not_found", "conflict", "permission_denied", "rate_limited",
	"unavailable", "timeout", "outcome_unknown", "approval_pending", "cursor_expired", "cancelled",
}

// String returns the kind's word on the wire, such as "not_found".
func (k Kind) String() string {
	if k < 0 || int(k) >= len(words) {
		return words[Internal]
	}
	return words[k]
}

// KindOfWord returns the kind that String spells as word, and Internal for a word it
// does not know.
func KindOfWord(word string) Kind {
	for k, w := range words {
		if w == word {
			return Kind(k)
		}
	}
	return Internal
}

// Field is one wrong argument.
type Field struct {
	// Path names the argument from the root of the request, such as
	// "tasks[3].depends_on[0]". Empty means the request as a whole.
	Path string `json:"path"`
	// Problem says what was wrong, what was expected and what would be right.
	Problem string `json:"problem"`
}

// Error is an error with a kind. Its message is written for the person or model that
// made the call: one sentence that says what happened, to what, and what to do next.
type Error struct {
	// Kind is what a caller can do about it.
	Kind Kind
	// Message is shown to the caller.
	Message string
	// Fields lists the wrong arguments of an InvalidArgument, all of them.
	Fields []Field
	// RetryAfter is how long to wait before the same call can succeed; zero: unknown.
	RetryAfter time.Duration
	// State is the state that forbids the request, such as "done"; empty: none.
	State string
	// Allowed lists what would have been accepted in place of what was given.
	Allowed []string
	// Holder names the principal that holds what was asked for; empty: none.
	Holder string
	// Cause is for the log only and is never shown to a caller.
	Cause error
}

// New returns an error of the given kind. The message is formatted as by fmt.Sprintf.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns an InvalidArgument about the given fields, of which there is at
// least one. Its message names every one of them.
func Invalid(fields ...Field) *Error {
	e := &Error{Kind: InvalidArgument, Fields: fields}
	for i, f := range fields {
		if i > 0 {
			e.Message += "; "
		}
		if f.Path != "" {
			e.Message += f.Path + ": "
		}
		e.Message += f.Problem
	}
	return e
}

// Error returns the message that a caller is shown.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, so that the log can show it.
func (e *Error) Unwrap() error { return e.Cause }

// Of returns the kind of the first fault in err's chain, and Internal where there is none.
func Of(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// As returns the first fault in err's chain; where there is none, it returns an
// Internal one whose cause is err and whose message gives nothing away.
func As(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: Internal, Message: "internal error; the daemon's log has the details", Cause: err}
}
