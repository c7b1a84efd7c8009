// Package tracing tells an OpenTelemetry collector how the time of a command is
// spent: in the command, the daemon, and calls to sandboxes' sentries.
//
// It does nothing unless the environment names a collector. Spans are called by what
// is done, and must never have in them what was in commands, files and environments.
package tracing
