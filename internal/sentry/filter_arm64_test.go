package sentry

// archForbidden are calls that other architectures lack.
var archForbidden []uintptr
