package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// fsCommands are the subcommands of "guest fs": tests of the file system that
// the program runs on, whichever that is. They work outside of a sandbox too,
// where the host's file systems show whether the tests are right.
var fsCommands = map[string]func(args []string) (int, error){
	"tar":     fsTar,
	"make":    fsMake,
	"verify":  fsVerify,
	"run":     fsRun,
	"lock":    fsLock,
	"fuzz":    fsFuzz,
	"stress":  fsStress,
	"end":     fsEnd,
	"fsck":    fsFsck,
	"free":    fsFree,
	"fill":    fsFill,
	"clear":   fsClear,
	"put":     fsPut,
	"churn":   fsChurn,
	"sum":     fsSum,
	"fsx":     fsFsx,
	"many":    fsMany,
	"journal": fsJournal,
}

// fs runs a subcommand of fsCommands.
func fs(args []string) (int, error) {
	if len(args) == 0 || fsCommands[args[0]] == nil {
		return 2, errors.New("there is no such subcommand")
	}
	return fsCommands[args[0]](args[1:])
}

// fsAreas are the tables of cases.
var fsAreas = []func() []fsCase{
	fsOpenCases, fsTmpfileCases, fsDirCases, fsUnlinkCases, fsLinkCases, fsSymlinkCases,
	fsRenameCases, fsExchangeCases, fsRenameErrorCases,
	fsPermCases, fsOwnerCases, fsStickyCases, fsTimeCases, fsUtimeCases,
	fsTruncateCases, fsIOCases, fsSparseCases, fsAllocCases, fsMmapCases, fsMmapEndCases,
	fsXattrCases, fsXattrUserCases, fsFifoCases, fsSocketCases, fsDeviceCases, fsLockCases, fsInotifyCases,
	fsBigDirCases, fsNameCases, fsDeepCases, fsWhiteoutCases, fsSpaceCases, fsRareCases,
}

func fsCases() []fsCase {
	var all []fsCase
	seen := map[string]bool{}
	for _, area := range fsAreas {
		for _, c := range area() {
			if seen[c.name] {
				panic("two cases are called " + c.name)
			}
			seen[c.name] = true
			all = append(all, c)
		}
	}
	return all
}

// The modes say where the directory of a case and the files in it come from.
const (
	fsNew    = "new"    // they were just made
	fsImage  = "image"  // they are part of the image
	fsForked = "forked" // they were made before a fork, by "fs make"
)

// fsResult is one line of what fsRun prints.
type fsResult struct {
	Name string `json:"name"`
	// Error says what is wrong, Skip why the case did not run.
	Error string  `json:"error,omitempty"`
	Skip  string  `json:"skip,omitempty"`
	MS    float64 `json:"ms"`
	// Done is set on the last line: nothing ended the program before.
	Done bool `json:"done,omitempty"`
}

// fsCaseTime is how long a case may take. One that takes longer hangs.
const fsCaseTime = 10 * time.Second

// fsRun runs the cases and prints a result for each.
func fsRun(args []string) (int, error) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	dir := flags.String("dir", "", "directory with a subdirectory for each case")
	mode := flags.String("mode", fsNew, "where those come from: new, image or forked")
	match := flags.String("match", "", "run the cases whose names match")
	skip := flags.String("skip", "^$", "leave out the cases whose names match")
	after := flags.String("after", "", "begin behind this case")
	limit := flags.Int64("limit", 0, "how many MiB can be written; runs the cases about that, and no others")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	wanted, err := regexp.Compile(*match)
	if err != nil {
		return 2, err
	}
	unwanted, err := regexp.Compile(*skip)
	if err != nil {
		return 2, err
	}
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return 1, err
	}
	unix.Umask(0)
	out := json.NewEncoder(os.Stdout)
	for _, c := range fsCases() {
		if *after != "" {
			if c.name == *after {
				*after = ""
			}
			continue
		}
		if !wanted.MatchString(c.name) || unwanted.MatchString(c.name) || c.once && *mode != fsNew || c.limited != (*limit > 0) {
			continue
		}
		t := &fsT{dir: fsCaseDir(*dir, c.name), mode: *mode, limit: *limit << 20}
		begin := time.Now()
		r, hangs := t.run(c)
		r.MS = float64(time.Since(begin).Microseconds()) / 1000
		if err := out.Encode(r); err != nil {
			return 1, err
		}
		if hangs {
			// Something still runs in this process and may do anything: the
			// rest needs a new one.
			return 1, syscall.Exec("/proc/self/exe", append(append([]string{"guest", "fs", "run"}, args...), "-after", c.name), os.Environ())
		}
	}
	return 0, out.Encode(fsResult{Done: true})
}

// fsCaseDir is the directory of a case below dir.
func fsCaseDir(dir, name string) string {
	return filepath.Join(dir, strings.ReplaceAll(name, "/", "."))
}

// run runs one case in its directory.
func (t *fsT) run(c fsCase) (r fsResult, hangs bool) {
	r.Name = c.name
	nodes := fsParse(c.tree, t.mode)
	if t.mode == fsNew {
		if err := fsMakeTree(t.dir, nodes); err != nil {
			r.Error = "make files: " + err.Error()
			return r, false
		}
	}
	if err := os.Chdir(t.dir); err != nil {
		r.Error = "enter directory: " + err.Error()
		return r, false
	}
	t.nodes = nodes
	done := make(chan error, 1)
	go func() { done <- t.guard(c.run) }()
	select {
	case err := <-done:
		var skip fsSkip
		switch {
		case errors.As(err, &skip):
			r.Skip = string(skip)
		case err != nil:
			r.Error = err.Error()
		}
		return r, false
	case <-time.After(fsCaseTime):
		r.Error = fmt.Sprintf("did not end within %v", fsCaseTime)
		return r, true
	}
}

// guard runs f and returns what it failed with. A fault on a mapped page is a
// failure too.
func (t *fsT) guard(f func(*fsT)) (err error) {
	defer func() {
		for _, undo := range t.undo {
			undo()
		}
	}()
	debug.SetPanicOnFault(true)
	defer func() {
		switch p := recover().(type) {
		case nil:
		case fsFailure:
			err = p
		case fsSkip:
			err = p
		default:
			err = fmt.Errorf("%s%v", fsCaller(), p)
		}
	}()
	f(t)
	return nil
}

// fsCaller is the place in a table of cases from which the helpers of fsT were
// called, if there is one.
func fsCaller() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		file := filepath.Base(f.File)
		if strings.HasPrefix(file, "fs_") && file != "fs_case.go" {
			return fmt.Sprintf("%s:%d: ", file, f.Line)
		}
		if !more {
			return ""
		}
	}
}
