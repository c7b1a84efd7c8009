package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// commands are the subcommands: each gets its arguments and returns the exit
// code.
var commands map[string]func(args []string) (int, error)

func init() {
	commands = map[string]func([]string) (int, error){
		"start":  start,
		"hold":   hold,
		"worker": worker,
		"ask":    ask,

		"true":     func([]string) (int, error) { return 0, nil },
		"exit":     exitWith,
		"say":      say,
		"cat":      cat,
		"tee":      tee,
		"env":      env,
		"id":       id,
		"sysinfo":  sysinfo,
		"space":    space,
		"write":    write,
		"rm":       remove,
		"fifo":     fifos,
		"ln":       link,
		"mv":       rename,
		"many":     many,
		"churn":    churn,
		"sleep":    sleep,
		"spew":     spew,
		"mapped":   mappedBy,
		"eat":      eat,
		"fill":     fill,
		"inherit":  inherit,
		"kill":     kill,
		"endinit":  endInit,
		"pollinit": pollInit,
		"brood":    brood,
		"netlinks": netlinks,
		"bomb":     bomb,
		"opens":    opens,
		"raise":    raise,
		"leave":    leave,
		"count":    count,
		"store":    storeBy,
		"screen":   screen,
		"warn":     warn,
		"edit":     edit,
		"list":     list,
		"stay":     stay,
		"staying":  staying,
		"scribble": scribble,
		"calls":    calls,
		"inside":   inside,
		"watch":    watchDir,
		"sweep":    sweep,
		"sweeping": sweeping,
		"cpuid":    sayCPUID,
		"pointers": pointers,
		"forkids":  forkIDs,
		"wipe":     wipeOnFork,
		"vectors":  vectors,
		"kinds":    kinds,
		"kind":     keepKinds,
		"check":    checkKinds,
		"attempts": attempts,
		"attempt":  attempt,
		"trail":    trail,

		"fs":      fs,
		"serve":   serve,
		"control": control,
		"outside": outside,
	}
}

func main() {
	args := os.Args[1:]
	if len(args) == 2 && strings.Contains(args[0], " ") {
		// A script that begins with "#!/bin/guest say x" gets all behind the
		// program as one argument, and its own path.
		args = strings.Fields(args[0])
	}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprintf(os.Stderr, "usage: guest %s\n", strings.Join(slices.Sorted(maps.Keys(commands)), "|"))
		os.Exit(2)
	}
	code, err := commands[args[0]](args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "guest %s: %v\n", args[0], err)
		code = max(code, 1)
	}
	os.Exit(code)
}
