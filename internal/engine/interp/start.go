package interp

import (
	_ "embed"
	"strconv"
)

// Language is a language that contexts can be of.
type Language string

// The languages.
const (
	Python Language = "python"
	Node   Language = "node"
	Bash   Language = "bash"
)

//go:embed hosts/variables.py
var pythonVariables string

//go:embed hosts/magics.py
var pythonMagics string

//go:embed hosts/charts.py
var pythonCharts string

//go:embed hosts/python.py
var pythonHost string

//go:embed hosts/random.js
var nodeRandom string

//go:embed hosts/node.js
var nodeHost string

//go:embed hosts/bash.sh
var bashHost string

// The stubs read a program's text from descriptor 3 and run it. The command line has only
// the length of the text, because lists of processes show the command line; they show the
// first line of a stub.
const (
	pythonStub = `# a context of ramet
import os,sys
if sys.version_info<(3,8):sys.exit("ramet: contexts need Python 3.8 or later, and this is "+sys.version.split()[0])
n=int(sys.argv[1]);s=b""
while len(s)<n:s+=os.read(3,n-len(s))
exec(compile(s,"<ramet>","exec"),{"__name__":"ramet_host"})`
	nodeStub = `// a context of ramet
if(parseInt(process.versions.node)<18){console.error('ramet: contexts need Node 18 or later, and this is '+process.versions.node);process.exit(1)}
(()=>{const f=require('fs'),n=+process.argv[1],b=Buffer.alloc(n);for(let i=0;i<n;)i+=f.readSync(3,b,i,n-i);
require('vm').runInThisContext('(function(require,load){'+b+'\n})',{filename:'<ramet>'})(require,(s)=>import(s))})()`
	// All on its first line: see hosts/bash.sh.
	bashStub = `: a context of ramet; LC_ALL=C IFS= read -r -N "$1" -u 3 __ramet_text; shift; eval "$__ramet_text"; while __ramet_next; do eval "$__ramet_cell"; __ramet_over $?; done`
)

// Program is how the interpreter of a language is started.
type Program struct {
	// Names are those of the interpreter, the first that is found is taken.
	Names []string
	// Args come after the interpreter's name.
	Args []string
	// Text is written to descriptor 3 before all requests.
	Text []byte
}

// ProgramOf returns the program of a language, and false for a language that
// contexts cannot be of.
func ProgramOf(l Language) (Program, bool) {
	program := func(text string, names []string, args ...string) (Program, bool) {
		return Program{Names: names, Args: append(args, strconv.Itoa(len(text))), Text: []byte(text)}, true
	}
	switch l {
	case Python:
		return program(pythonVariables+pythonMagics+pythonCharts+pythonHost, []string{"python3", "python"}, "-c", pythonStub)
	case Node:
		return program(nodeRandom+nodeHost, []string{"node", "nodejs"}, "--input-type=commonjs", "-e", nodeStub)
	case Bash:
		return program(bashHost, []string{"bash"}, "--norc", "--noprofile", "-c", bashStub, "bash")
	}
	return Program{}, false
}
