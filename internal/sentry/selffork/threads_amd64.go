package selffork

import "os"

// learnThreads has nothing to learn: a thread's g is always found by its segment register.
func learnThreads(*os.Root) error { return nil }
