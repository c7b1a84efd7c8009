// Package service is the commands for those who run a daemon for others: tokens, tenants, the
// audit, events and requests of the REST interface.
//
// It never runs a daemon: how that is done is given to package cli.
package service
