// Package core holds what requests carry, and errors.
package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// TenantID names a tenant.
type TenantID string

type (
	tenant  struct{}
	session struct{}
)

func WithTenant(ctx context.Context, id TenantID) context.Context {
	return context.WithValue(ctx, tenant{}, id)
}

func GetTenant(ctx context.Context) TenantID {
	id, _ := ctx.Value(tenant{}).(TenantID)
	return id
}

func WithSessionID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, session{}, id)
}

func GetSessionID(ctx context.Context) string {
	id, _ := ctx.Value(session{}).(string)
	return id
}

// ErrorCode is the kind of an error.
type ErrorCode string

const (
	ErrRateLimit    ErrorCode = "rate_limit"
	ErrAuth         ErrorCode = "auth_error"
	ErrTimeout      ErrorCode = "timeout"
	ErrInvalidInput ErrorCode = "invalid_input"
	ErrProviderDown ErrorCode = "provider_unavailable"
	ErrNotFound     ErrorCode = "not_found"
)

// Error is an error with a code.
type Error struct {
	Op      string
	Code    ErrorCode
	Message string
	Err     error
}

func NewError(op string, code ErrorCode, msg string, cause error) *Error {
	return &Error{op, code, msg, cause}
}

func Errorf(code ErrorCode, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

func (e *Error) Error() string {
	text := e.Op + " [" + string(e.Code) + "]: " + e.Message
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Is compares codes alone.
func (e *Error) Is(target error) bool {
	var other *Error
	return errors.As(target, &other) && other.Code == e.Code
}

// IsRetryable judges the outermost Error.
func IsRetryable(err error) bool {
	var e *Error
	return errors.As(err, &e) && slices.Contains([]ErrorCode{ErrRateLimit, ErrTimeout, ErrProviderDown}, e.Code)
}
