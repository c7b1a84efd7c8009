// Package sandboxes holds the sandboxes of a node: their records, their sentries, their
// names, and the one table by which their states change.
//
//	Record    what is stored of a sandbox
//	Instance  a record, the sentry that the sandbox runs in, and who uses it
//	Registry  the instances by id; writes records, watches sentries
//	Names     the names of tenants for their sandboxes
//	EventLog  what happened to sandboxes
//	Recovery  brings records and running sentries together when a daemon starts
//
// A sandbox changes its sentry by Registry.Install and ends by Registry.Destroy. Both write
// the record before anybody sees the change.
//
// Lock order: Instance.Op, Registry.mu, Instance.mu, freezes.Table.mu. Under the locks of Names
// and Birth no other lock is taken. No call to a sentry is made while Registry.mu or a lock
// after it is held.
//
// The package must never know why a sandbox is made, rests or ends, nor how it is forked:
// it tells its Listener.
package sandboxes
