package api

const (
	// MaxChildren is how many sandboxes one fork or restore makes at most.
	MaxChildren = 1000
	// MaxCollected is how many bytes of each output stream of a command an answer holds that is
	// not streamed. The rest is dropped, and the answer says so.
	MaxCollected = 8 << 20
)

// ValidCount checks how many sandboxes a fork or restore is to make.
func ValidCount(n int) error {
	if n < 1 || n > MaxChildren {
		return Invalid("count", "%d is not from 1 to %d", n, MaxChildren)
	}
	return nil
}
