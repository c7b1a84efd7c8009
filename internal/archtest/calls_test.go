package archtest

import (
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// banned are calls and values that are not used, by package and name.
var banned = []struct {
	pkg, name string
	reason    string
	in        map[string]string // files and directories that may, with the reason
}{
	{"os", "IsNotExist", "it does not look into wrapped errors: errors.Is(err, fs.ErrNotExist)", nil},
	{"os", "IsExist", "it does not look into wrapped errors: errors.Is(err, fs.ErrExist)", nil},
	{"os", "IsPermission", "it does not look into wrapped errors: errors.Is(err, fs.ErrPermission)", nil},
	{"os", "IsTimeout", "it does not look into wrapped errors: errors.Is(err, os.ErrDeadlineExceeded)", nil},
	{"http", "DefaultClient", "it has no timeout and is everybody's", nil},
	{"http", "DefaultTransport", "it is everybody's", nil},
	{"http", "DefaultServeMux", "it is everybody's", nil},
	{"http", "Get", "it uses http.DefaultClient", nil},
	{"http", "Head", "it uses http.DefaultClient", nil},
	{"http", "Post", "it uses http.DefaultClient", nil},
	{"http", "PostForm", "it uses http.DefaultClient", nil},
	{"http", "Handle", "it uses http.DefaultServeMux", nil},
	{"http", "HandleFunc", "it uses http.DefaultServeMux", nil},
	{"http", "ListenAndServe", "its server has no timeouts", nil},
	{"context", "TODO", "a context is passed in, or the reason for a new one is written down", nil},
	{"time", "Sleep", "nothing is synchronised by sleeping: wait for the event, or for a timer and ctx; a test that has to poll does so in a function eventually, which gives up", map[string]string{
		"internal/workload/guest_test.go": "the agent tells nobody when it listens",
		"test/harness/chance.go":          "RandomPause: a random time at which to kill something",
		"test/guest":                      "a program in the sandbox that has to take its time",
	}},
	{"os", "Exit", "only the process that owns itself may end it", map[string]string{
		"internal/sentry/server.go": "a sentry ends itself when its daemon is gone or says so",
		"internal/sentry/zygote.go": "so does the zygote, which has nobody else to tell",
	}},
}

// panics are the files in which a panic is right.
var panics = map[string]string{
	"internal/server/e2b/envd/rpc.go":                "net/http ends a connection by it",
	"internal/server/e2b/server.go":                  "it passes on the end of a connection, which net/http knows from a panic",
	"internal/build/contextdir/select.go":            "the names of files of a context are texts, which JSON always encodes",
	"internal/build/dockerfile/stager.go":            "what decides a step is texts and numbers, which JSON always encodes",
	"internal/sentry/rootfs/inode/save.go":           "the encoder or decoder of a saved state makes it an error",
	"internal/sentry/guestinit/assembler_amd64.go":   "a constant program: its test would fail",
	"internal/sentry/guestinit/assembler_arm64.go":   "a constant program: its test would fail",
	"internal/sentry/guestinit/elf.go":               "a constant program: its test would fail",
	"internal/image/catalog/record.go":               "encoding of strings cannot fail",
	"internal/cli/serve.go":                          "a flag that was defined the line before",
	"internal/server/rest/route/router.go":           "types of the package itself cannot be described: its tests would fail",
	"internal/server/rest/middleware.go":             "http.ErrAbortHandler is how net/http is told to break off an answer",
	"internal/server/rest/dataplane/filecontents.go": "as in middleware.go",
	"internal/server/rest/control/exports.go":        "as in middleware.go",
	"internal/storage/pack/oci.go":                   "encoding of strings and numbers cannot fail",
	"internal/sentry/cow/platform.go":                "a frozen page is about to be written: end this sandbox before it harms its relatives",
	"internal/mcp/schema.go":                         "types and tags of the package itself: its tests would fail",
	"internal/sentry/spawn/limits.go":                "a constant table of gVisor",
}

// plainErrors are the files in which an error is formatted without %w, with the
// reason.
var plainErrors = map[string]string{
	"internal/sentry/netspaces/interfaces.go": "tcpip.Error is no error",
	"internal/sentry/netspaces/stacks.go":     "tcpip.Error is no error",
	"internal/sentry/uplink/link.go":          "tcpip.Error is no error",
	"internal/sentry/uplink/outer.go":         "tcpip.Error is no error",
	"internal/doctor/namespaces.go":           "the error may be nil: it is one of two things that can be wrong",
	"internal/doctor/process.go":              "the error may be nil: it is one of two things that can be wrong",
	"internal/storage/paths/find.go":          "a reason within a message about a setting",
}

// fault is one broken rule.
type fault struct {
	node ast.Node
	text string
}

// callFaults returns the calls in s that are not made.
func callFaults(s *source) []fault {
	var faults []fault
	imports := importNames(s.ast)
	lenient := s.isTest() || within(s.dir, []string{"test"}) // nobody decides on their errors
	polling := false                                         // within a function eventually
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			polling = lenient && strings.EqualFold(n.Name.Name, "eventually")
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok || imports[x.Name] == "" {
				return true
			}
			for _, b := range banned {
				if imports[x.Name] != b.pkg || n.Sel.Name != b.name || excepted(b.in, s.file) {
					continue
				}
				testMay := b.name != "Sleep" || polling // tests have servers of their own and errors that nobody wrapped
				if !(lenient && testMay) && !(s.ast.Name.Name == "main" && b.name == "Exit") {
					faults = append(faults, fault{n, b.pkg + "." + b.name + ": " + b.reason})
				}
			}
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "panic" && !lenient && !excepted(panics, s.file) {
				faults = append(faults, fault{n, "panic: return an error, or list the file with the reason why it cannot happen"})
			}
			if arg := plainError(n, imports); arg != "" && !lenient && !excepted(plainErrors, s.file) {
				faults = append(faults, fault{n, "fmt.Errorf formats " + arg + " without %w: its cause and code are lost"})
			}
		}
		return true
	})
	return faults
}

// excepted reports whether a file, or the directory it is in, is among files.
func excepted(files map[string]string, file string) bool {
	return files[file] != "" || files[path.Dir(file)] != ""
}

// importNames maps the names by which a file knows packages to the last element
// of their paths.
func importNames(f *ast.File) map[string]string {
	names := map[string]string{}
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has accepted it, so this does not happen
		}
		base := p[strings.LastIndexByte(p, '/')+1:]
		if p != base && p != "net/"+base {
			continue // only the standard library has banned calls
		}
		name := base
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = base
	}
	return names
}

// plainError returns the name of an argument of fmt.Errorf that looks like an
// error and meets a verb other than %w, or "".
func plainError(call *ast.CallExpr, imports map[string]string) string {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || fun.Sel.Name != "Errorf" || len(call.Args) < 2 {
		return ""
	}
	if x, ok := fun.X.(*ast.Ident); !ok || imports[x.Name] != "fmt" {
		return ""
	}
	format, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return ""
	}
	verbs := verbsOf(format.Value)
	for i, arg := range call.Args[1:] {
		if id, ok := arg.(*ast.Ident); ok && isErrorName(id.Name) && i < len(verbs) && verbs[i] != 'w' {
			return id.Name
		}
	}
	return ""
}

func isErrorName(name string) bool {
	return name == "err" || name == "errno" || strings.HasSuffix(name, "Err") || strings.HasPrefix(name, "err") && name[3:] == strings.ToUpper(name[3:])
}

// verbsOf returns the verbs of a format, one for each argument. Widths taken
// from arguments (%*d) are not used here.
func verbsOf(format string) []byte {
	var verbs []byte
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		for i++; i < len(format) && strings.IndexByte("+-# 0123456789.", format[i]) >= 0; i++ {
		}
		if i < len(format) && format[i] != '%' {
			verbs = append(verbs, format[i])
		}
	}
	return verbs
}

func TestCalls(t *testing.T) {
	for _, s := range goFiles(t) {
		for _, f := range callFaults(s) {
			t.Errorf("%s %s", s.at(f.node), f.text)
		}
	}
}

func TestCallFaultsAreFound(t *testing.T) {
	const head = "package p\nimport (\"fmt\"; \"os\"; h \"net/http\"; \"time\"; \"x.example/time2/time3\")\nvar _ = time3.Sleep\nfunc f(err, readErr error) error {\n"
	for body, want := range map[string]string{
		`os.IsNotExist(err)`:                 "os.IsNotExist",
		`h.DefaultClient.Do(nil)`:            "http.DefaultClient",
		`h.Get("")`:                          "http.Get",
		`time.Sleep(1)`:                      "time.Sleep",
		`panic(err)`:                         "panic",
		`os.Exit(1)`:                         "os.Exit",
		`return fmt.Errorf("open: %v", err)`: "without %w",
		`return fmt.Errorf("%s: %+v", "x", readErr)`:            "without %w",
		`return fmt.Errorf("100%% of %q: %w", "x", err)`:        "",
		`return fmt.Errorf("%d things, %w", 3, readErr)`:        "",
		`return fmt.Errorf("%v", time.Second)`:                  "",
		`var os struct{ IsNotExist func() }; _ = os.IsNotExist`: "os.IsNotExist", // a name that hides a package is no better
	} {
		faults := callFaults(parse(t, "internal/p/p.go", []byte(head+body+"\n}\n")))
		switch {
		case want == "" && len(faults) > 0:
			t.Errorf("%s: %q", body, faults[0].text)
		case want != "" && !slices.ContainsFunc(faults, func(f fault) bool { return strings.Contains(f.text, want) }):
			t.Errorf("%s: %d faults, none about %q", body, len(faults), want)
		}
	}
}

// TestExceptionsAreNeeded fails for exceptions that outlived their reason.
func TestExceptionsAreNeeded(t *testing.T) {
	exceptions := map[string]map[string]string{"panic": panics, "fmt.Errorf": plainErrors}
	for _, b := range banned {
		if b.in != nil {
			exceptions[b.pkg+"."+b.name] = b.in
		}
	}
	texts := map[string]string{} // of files and directories
	for _, s := range goFiles(t) {
		texts[s.file] = string(s.text)
		texts[s.dir] += string(s.text)
	}
	for call, files := range exceptions {
		for file := range files {
			if !strings.Contains(texts[file], call+"(") {
				t.Errorf("%s is excepted from the rule about %s and has no such call", file, call)
			}
		}
	}
}
