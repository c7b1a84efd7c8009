//go:build !race

package host

// raceEnabled says that memory is not to be measured: the race detector multiplies it.
const raceEnabled = false
