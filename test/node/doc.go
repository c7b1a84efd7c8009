// Package node tests a node as a whole: its tenants, limits, events, metrics, errors and posture, and that sandboxes
// outlive its daemons. It has tests only,
// with real sandboxes: see package harness.
package node
