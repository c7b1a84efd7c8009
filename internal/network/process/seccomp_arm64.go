package process

// archCalls see calls.
var archCalls = []string{"fstatat"}
