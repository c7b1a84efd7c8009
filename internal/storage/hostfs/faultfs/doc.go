// Package faultfs is a hostfs.FS for tests: it works on real files and makes the n-th
// operation fail, as pebble's errorfs and LiteFS do.
//
// It is for tests only. It must never be linked into the product, and it never judges what
// its users do: the tests say what must hold after a fault.
package faultfs
