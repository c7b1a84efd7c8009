// Package service has the commands for the operator of a daemon: tokens, tenants, the audit log,
// events, and requests of the REST interface.
//
// It never runs a daemon: package cli has the serve command.
package service
