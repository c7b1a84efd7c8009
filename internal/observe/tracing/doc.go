// Package tracing sends spans to an OpenTelemetry collector: of commands, of the daemon, and of
// calls to sandboxes' sentries.
//
// It does nothing unless the environment names a collector. Spans have the names of operations,
// and must never have the contents of commands, files and environments.
package tracing
