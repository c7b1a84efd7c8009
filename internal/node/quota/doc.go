// Package quota keeps the accounts of tenants and decides what they may make and run.
//
//	Ledger     quotas and processor time, stored
//	Turns      how many heavy operations are under way at once
//	Admission  refuses what exceeds a quota or does not fit the host's memory
//	Room       frees memory by putting idle sandboxes to disk
//
// The package never reads what a sandbox uses nor how much memory there is: it is told.
package quota
