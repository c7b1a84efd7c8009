// Command ramet-guest is `ramet` inside of a sandbox that may control itself: it
// sends one request on the socket there and prints the answer.
//
// It is written to every such sandbox, so it stays small: it never imports a package that a socket
// and JSON do not need.
package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"

	"ramet.dev/ramet/internal/engine/control"
)

const (
	exitFailure = 1
	exitUsage   = 2
	// exitChild is the exit code of `ramet fork --exit-code` in a child.
	exitChild = 10
)

const usage = `usage: ramet [--json] COMMAND

  fork [-n N] [--meta K=V] [--exit-code]
                      make N copies of this sandbox; prints "parent ID…" here and
                      "child INDEX" in each copy, where --exit-code returns 10
  snapshot [--name NAME] [--memory]
                      keep this state; prints "snapshot ID", and "restored INDEX"
                      in what is made from it or rolled back to it
  rollback [SNAPSHOT] return to a snapshot, the last one if none is named
  diff [SNAPSHOT|CHILD]
                      files that changed since a snapshot, or that a child changed
  tag K=V… K-…        set and remove metadata
  info                what this sandbox is and may still do
`

// options are the arguments of a command.
type options struct {
	json, exitCode bool
	req            control.Request
}

func main() {
	o, wrong := parse(os.Args[1:])
	if wrong != "" {
		os.Stderr.WriteString("ramet: " + wrong + "; see 'ramet help'\n")
		os.Exit(exitUsage)
	}
	os.Exit(run(o))
}

func run(o *options) int {
	line, err := ask(o.req)
	if err != nil {
		os.Stderr.WriteString("ramet: " + err.Error() + "\n")
		return exitFailure
	}
	var r control.Reply
	if err := json.Unmarshal(line, &r); err != nil {
		os.Stderr.WriteString("ramet: the answer is not understood: " + err.Error() + "\n")
		return exitFailure
	}
	if o.json {
		os.Stdout.Write(append(line, '\n'))
	}
	if r.Error != nil {
		if !o.json {
			os.Stderr.WriteString("ramet: " + r.Error.Error() + "\n")
		}
		return max(r.Error.ExitCode, exitFailure)
	}
	code := 0
	for _, c := range r.Children {
		if c.Error != nil {
			os.Stderr.WriteString("ramet: child " + strconv.Itoa(c.Index) + ": " + c.Error.Error() + "\n")
			code = max(c.Error.ExitCode, exitFailure)
		}
	}
	if r.Child != nil && o.exitCode {
		code = exitChild
	}
	if !o.json {
		os.Stdout.WriteString(text(&r))
	}
	return code
}

// parse parses the arguments, or returns an error that explains them.
func parse(args []string) (o *options, wrong string) {
	o = &options{}
	var words []string
	value := func(i *int, name string) string {
		if _, v, ok := strings.Cut(args[*i], "="); ok && strings.HasPrefix(args[*i], "--") {
			return v
		}
		if *i++; *i >= len(args) {
			wrong = name + " needs a value"
			return ""
		}
		return args[*i]
	}
	for i := 0; i < len(args) && wrong == ""; i++ {
		switch name, _, _ := strings.Cut(args[i], "="); {
		case len(words) > 0 && words[0] == "tag" && !strings.HasPrefix(args[i], "-"):
			words = append(words, args[i])
		case name == "-n", name == "--count":
			n, err := strconv.Atoi(value(&i, name))
			if wrong == "" && (err != nil || n < 1) {
				wrong = name + " needs a number from 1"
			}
			o.req.Count = &n
		case name == "--meta":
			k, v, ok := strings.Cut(value(&i, name), "=")
			if wrong == "" && (!ok || k == "") {
				wrong = "--meta needs K=V"
			}
			if o.req.Metadata == nil {
				o.req.Metadata = map[string]string{}
			}
			o.req.Metadata[k] = v
		case name == "--name":
			o.req.Name = value(&i, name)
		case args[i] == "--memory":
			o.req.Memory = true
		case args[i] == "--json":
			o.json = true
		case args[i] == "--exit-code":
			o.exitCode = true
		case args[i] == "-h", args[i] == "--help", args[i] == "help" && len(words) == 0:
			os.Stdout.WriteString(usage)
			os.Exit(0)
		case strings.HasPrefix(args[i], "-"):
			wrong = "unknown option " + args[i]
		default:
			words = append(words, args[i])
		}
	}
	if wrong == "" {
		wrong = o.command(words)
	}
	return o, wrong
}

// command reads the words that are no options.
func (o *options) command(words []string) (wrong string) {
	if len(words) == 0 {
		return "no command"
	}
	o.req.Op = control.Op(words[0])
	rest := words[1:]
	most := 0
	switch o.req.Op {
	case control.OpInfo, control.OpFork, control.OpSnapshot:
	case control.OpRollback, control.OpDiff:
		most = 1
	case control.OpTag:
		return o.tags(rest)
	default:
		return "unknown command " + words[0]
	}
	if len(rest) > most {
		return words[0] + " has too many arguments"
	}
	if len(rest) == 1 && o.req.Op == control.OpRollback {
		o.req.Snapshot = rest[0]
	} else if len(rest) == 1 {
		o.req.With = rest[0]
	}
	return ""
}

func (o *options) tags(words []string) (wrong string) {
	o.req.Set = map[string]string{}
	for _, w := range words {
		k, v, set := strings.Cut(w, "=")
		switch {
		case set && k != "":
			o.req.Set[k] = v
		case !set && len(w) > 1 && strings.HasSuffix(w, "-"):
			o.req.Remove = append(o.req.Remove, strings.TrimSuffix(w, "-"))
		default:
			return w + " is neither KEY=VALUE nor KEY-"
		}
	}
	if len(words) == 0 {
		return "tag needs KEY=VALUE or KEY-"
	}
	return ""
}
