package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/internal/fault"
)

// answer turns an error into the status that the caller receives, and logs what nobody
// classified. It is the only place that does either.
func (ch *chain) answer(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	f := classify(err)
	if f.Kind == fault.Internal {
		ch.logger.ErrorContext(ctx, "call failed", "method", method, "error", err)
	}
	clean := ch.clean(f)
	s := status.New(codeOf(f.Kind), clean.Message)
	if detailed, err := s.WithDetails(details(clean)...); err == nil {
		s = detailed
	}
	return s.Err()
}

// classify returns the fault that an error is.
func classify(err error) *fault.Error {
	var f *fault.Error
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, context.Canceled):
		return &fault.Error{Kind: fault.Cancelled, Message: "the call was cancelled", Cause: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &fault.Error{Kind: fault.Timeout, Message: "the call took too long", Cause: err}
	}
	return fault.As(err)
}

// clean returns the fault without secrets, in valid UTF-8.
func (ch *chain) clean(f *fault.Error) *fault.Error {
	text := func(s string) string { return strings.ToValidUTF8(ch.secrets.String(s), string(utf8.RuneError)) }
	out := *f
	out.Message, out.State, out.Holder = text(f.Message), text(f.State), text(f.Holder)
	out.Fields = make([]fault.Field, len(f.Fields))
	for i, field := range f.Fields {
		out.Fields[i] = fault.Field{Path: text(field.Path), Problem: text(field.Problem)}
	}
	out.Allowed = make([]string, len(f.Allowed))
	for i, a := range f.Allowed {
		out.Allowed[i] = text(a)
	}
	return &out
}

// details is the machine's part of a status. Package hostclient reads it back.
func details(f *fault.Error) []protoadapt.MessageV1 {
	info := &errdetails.ErrorInfo{Domain: "compozy.dev", Reason: f.Kind.String(), Metadata: map[string]string{}}
	if f.State != "" {
		info.Metadata["state"] = f.State
	}
	if f.Holder != "" {
		info.Metadata["holder"] = f.Holder
	}
	if len(f.Allowed) > 0 {
		list, _ := json.Marshal(f.Allowed) // strings always marshal
		info.Metadata["allowed"] = string(list)
	}
	out := []protoadapt.MessageV1{info}
	if len(f.Fields) > 0 {
		bad := &errdetails.BadRequest{}
		for _, field := range f.Fields {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: field.Path, Description: field.Problem})
		}
		out = append(out, bad)
	}
	if f.RetryAfter > 0 {
		out = append(out, &errdetails.RetryInfo{RetryDelay: durationpb.New(f.RetryAfter)})
	}
	return out
}

func codeOf(k fault.Kind) codes.Code {
	switch k {
	case fault.InvalidArgument:
		return codes.InvalidArgument
	case fault.NotFound:
		return codes.NotFound
	case fault.Conflict, fault.ApprovalPending:
		return codes.FailedPrecondition
	case fault.PermissionDenied:
		return codes.PermissionDenied
	case fault.RateLimited:
		return codes.ResourceExhausted
	case fault.Unavailable:
		return codes.Unavailable
	case fault.Timeout:
		return codes.DeadlineExceeded
	case fault.OutcomeUnknown:
		return codes.Unknown
	case fault.CursorExpired:
		return codes.OutOfRange
	case fault.Cancelled:
		return codes.Canceled
	case fault.Internal:
		return codes.Internal
	}
	return codes.Internal
}

// scopeWord returns the word for a scope, such as "read".
func scopeWord(s toolv1.Scope) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "SCOPE_"))
}
