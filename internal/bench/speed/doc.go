// Package speed measures how fast the processors of this machine are at the moment.
//
// It must never know what else is measured.
package speed
