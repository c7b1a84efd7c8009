package debian

// Step is one command of the second stage, to be run as root inside the image.
type Step struct {
	Name string   // for progress and error messages
	Argv []string // Argv[0] is an absolute path
	Env  []string // the whole environment, "NAME=value"
}

// planFile tells the "prepare" step what to do in which order. It is written by
// Build and removed by the "clean" step.
const planFile = "var/lib/ramet/configure-plan"

// prepareScript carries out the plan. Its words are package names, which hold
// nothing that a shell would take for more than a word.
const prepareScript = `set -e
while read -r verb names; do
	case $verb in
	configure)
		dpkg --force-unsafe-io --configure $names </dev/null ;;
	preinst)
		DPKG_MAINTSCRIPT_NAME=preinst DPKG_MAINTSCRIPT_PACKAGE=${names%%:*} \
			"/var/lib/dpkg/info/$names.preinst" install </dev/null ||
			{ echo "preinst script of $names failed" >&2; exit 1; } ;;
	esac
done </` + planFile + "\n"

// cleanScript removes what configuring leaves behind and nothing reads again, and the mark that keeps pip
// from installing beside Debian's packages: it is there for machines, and PEP 668 has containers without it.
const cleanScript = `set -e
rm -rf /var/lib/ramet /var/cache/apt/* /var/lib/apt/lists/*
rm -f /var/cache/debconf/*-old /var/lib/dpkg/*-old
rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid-
rm -f /var/log/dpkg.log /var/log/alternatives.log /var/log/bootstrap.log
rm -rf /tmp/* /var/tmp/*
rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
`

const verifyScript = `problems=$(dpkg --audit)
[ -z "$problems" ] || { echo "$problems" >&2; exit 1; }
`

// ConfigureSteps returns the commands that finish an image made by Build. They
// must run in order, as root, in a sandbox whose root is the image, with /proc
// and /dev mounted and no need of a network. Each must exit with 0; the last
// one fails if any package is not fully installed.
func ConfigureSteps() []Step {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		"LC_ALL=C.UTF-8",
		"DEBIAN_FRONTEND=noninteractive",
		"DEBCONF_NONINTERACTIVE_SEEN=true",
		"DEBCONF_NOWARNINGS=yes",
	}
	shell := func(name, script string) Step {
		return Step{Name: name, Argv: []string{"/bin/sh", "-c", script}, Env: env}
	}
	return []Step{
		shell("prepare", prepareScript),
		// The image is thrown away if this fails, so nothing needs to be synced.
		{Name: "configure", Argv: []string{"/usr/bin/dpkg", "--force-unsafe-io", "--configure", "-a"}, Env: env},
		shell("clean", cleanScript),
		shell("verify", verifyScript),
	}
}
