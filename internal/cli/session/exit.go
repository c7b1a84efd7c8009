package session

import (
	"fmt"
)

// ExitError ends a command with an exit code and without a message.
type ExitError int

// Error implements error.
func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }
