package cgroup

import "errors"

// ErrUnavailable is what errors.Is finds in every *UnavailableError.
var ErrUnavailable = errors.New("control groups are not available")

// UnavailableError tells why this process cannot make control groups.
type UnavailableError struct {
	// Reason is what was found.
	Reason string
	// Remedy is what a person can do about it.
	Remedy string
}

// Error implements error.
func (e *UnavailableError) Error() string {
	return ErrUnavailable.Error() + ": " + e.Reason
}

// Is makes every UnavailableError match ErrUnavailable.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }
