// Package faultfs is a hostfs.FS for tests: it works on real files and makes the n-th
// operation fail, as pebble's errorfs and LiteFS do.
//
// It is for tests only. It must never be linked into the product, and never knows what must
// hold after a fault: that is asserted by the tests.
package faultfs
