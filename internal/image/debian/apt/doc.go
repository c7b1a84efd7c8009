// Package apt reads the apt configuration of a host: its package sources, and the
// settings of proxies and date checks.
//
// The package reads files only. It must never open a connection, nor decide whether an
// archive is trusted.
package apt
