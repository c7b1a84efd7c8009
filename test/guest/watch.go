package main

import (
	"fmt"
	"os"
)

// watchDir prints what happens in directories until an entry of the name of the first argument is made in the first of
// them. It makes /tmp/watching when it watches.
func watchDir(args []string) (code int, err error) {
	t := &fsT{}
	last, dirs := args[0], args[1:]
	w := t.watch(dirs...)
	if err := os.WriteFile("/tmp/watching", nil, 0o644); err != nil {
		return 1, err
	}
	for {
		for _, e := range w.events() {
			fmt.Println(e)
			if e == dirs[0]+": CREATE "+last {
				return 0, nil
			}
		}
		t.tick()
	}
}
