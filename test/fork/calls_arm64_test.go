package fork

// archUntriedCalls are more of untriedCalls.
var archUntriedCalls []int
