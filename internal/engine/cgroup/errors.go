package cgroup

import "errors"

// ErrUnavailable matches every *UnavailableError in errors.Is.
var ErrUnavailable = errors.New("control groups are not available")

// UnavailableError tells why this process cannot make control groups.
type UnavailableError struct {
	// Reason is the cause that was found.
	Reason string
	// Remedy is a sentence about how a person can remove the cause.
	Remedy string
}

// Error implements error.
func (e *UnavailableError) Error() string {
	return ErrUnavailable.Error() + ": " + e.Reason
}

// Is makes every UnavailableError match ErrUnavailable.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }
