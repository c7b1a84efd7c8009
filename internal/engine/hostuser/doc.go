// Package hostuser finds users, and groups, of the host that nobody has, for the sentries
// of a daemon that is root's. It must never know what is started as them, and it changes
// nothing of the host.
package hostuser
