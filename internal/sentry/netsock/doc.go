// Package netsock reaches the sockets of a guest's network stack by fields that gVisor has no accessors
// for, and gives them other ends while the guest is saved.
//
// It must never know which connections are lost, nor why.
package netsock
