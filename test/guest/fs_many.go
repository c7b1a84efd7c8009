package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// fsMany makes, checks or removes entries of a directory: ACTION DIR COUNT. An action
// on its own is about all, "-odd" and "-even" about half of them. What is checked is
// that these are there and no others, whatever one asks.
func fsMany(args []string) (int, error) {
	action, which, _ := strings.Cut(args[0], "-")
	dir, count := args[1], mustInt(args[2], 10)
	var names []string
	for i := range count {
		if which == "" || which == "odd" && i%2 == 1 || which == "even" && i%2 == 0 {
			names = append(names, fmt.Sprintf("entry-%06d", i*7919%count)) // in no order
		}
	}
	// 7919 is a prime, so that each number is there once.
	if action == "make" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return 1, err
		}
	}
	if err := os.Chdir(dir); err != nil {
		return 1, err
	}
	for _, name := range names {
		var err error
		switch action {
		case "make":
			err = try(name, wronly|creat|excl, 0o600)
		case "remove":
			err = unix.Unlink(name)
		case "check":
			var s unix.Stat_t
			err = unix.Lstat(name, &s)
		}
		if err != nil {
			return 1, fmt.Errorf("%s %s: %w", action, name, err)
		}
	}
	if action != "check" {
		return 0, nil
	}
	found, err := filepath.Glob("*") // in their order
	if err != nil {
		return 1, err
	}
	if slices.Sort(names); !slices.Equal(found, names) {
		return 1, fmt.Errorf("%d entries are listed, not %d", len(found), len(names))
	}
	return 0, nil
}
