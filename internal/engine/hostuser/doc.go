// Package hostuser finds numbers of users and groups that the host does not use, for the
// sentries of a daemon that runs as root. It must never know what is started with them, and
// it changes nothing on the host.
package hostuser
