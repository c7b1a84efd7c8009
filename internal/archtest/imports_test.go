package archtest

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// arrows is the picture of the program: which packages of ours each package may
// import, and why no more. Code of tests may import anything of ours that is not
// restricted below, because a test stands outside.
var arrows = []struct {
	from   string
	to     []string
	reason string
}{
	{"api", nil, "the vocabulary: everybody speaks in it, so it depends on nobody"},
	{"internal/engine/snapfile", nil, "a format: the daemon and the sentry share it and nothing else about memory"},
	{"internal/storage/pages", nil, "pages and files of them; what is in a page is not its business"},
	{"internal/storage/pages/pagestest", []string{"internal/storage/pages"}, "stores for tests"},
	{"internal/storage/btree", []string{"internal/storage/pages"}, "a map in pages; it does not know what its keys mean"},
	{"internal/storage/cowfs", []string{"internal/storage/btree", "internal/storage/erofs", "internal/storage/pages"}, "files in pages: it knows neither gVisor nor what a sandbox is, so that the daemon reads what the sentry writes"},
	{"internal/storage/treediff", []string{"internal/storage/cowfs", "internal/storage/pages"}, "changes between two trees; it does not know who has them"},
	{"internal/storage/erofs/erofstest", []string{"internal/storage/erofs"}, "an image for tests"},
	{"internal/storage/textdiff", nil, "an algorithm: it does not know where texts come from"},
	{"internal/storage/merge", []string{"internal/storage/textdiff"}, "plans only: it knows neither how trees are stored nor what a sandbox is, so that it is tested on trees in memory"},
	{"internal/storage/volume", nil, "names and files of a directory tree; who uses it is not its business"},
	{"internal/storage/erofs", nil, "a format: it knows no archive and no store"},
	{"internal/sentry/guestinit", nil, "a constant: one program"},
	{"internal/sentry/hostsfile", nil, "text alone"},
	{"internal/engine/control", nil, "words between a guest and the daemon; the guest's command is linked with it and stays small"},
	{"internal/engine/interp", nil, "programs of the guest and what they say; who carries it is not its business"},
	{"internal/engine/sentrybin", nil, "it does not know what the program does that it carries"},
	{"internal/peer", nil, "the ends of connections; what is said on them is not its business"},
	{"internal/tunnel", []string{"internal/peer"}, "bytes between two connections; what they are for is not its business"},
	{"internal/observe/procfs", nil, "a measuring instrument must not depend on what it measures"},
	{"internal/engine/memwatch", nil, "it reads numbers and ends a process; what the process is, is not its business"},
	{"internal/engine/idlepoll", []string{"api"}, "it is told that there is a request, not of what"},
	{"internal/docgen", []string{"internal/server/rest", "api"}, "it renders what the code says of itself"},
	{"internal/polltest", nil, "waiting in tests"},
	{"skills", nil, "texts; what is done with them is not its business"},
	{"internal/testrun", []string{"internal/observe/procfs"}, "processes and names of tests; what a test does is not its business"},
	{"internal/judges", nil, "installing for tests; what is judged is not its business"},
	{"internal/archtest", nil, "it reads source text only"},

	{"internal/engine/wire", []string{"internal/engine/interp", "api", "internal/engine/snapfile"}, "the host side and the sentry meet here only"},
	{"internal/network/wire", nil, "messages about flows; a sentry links it, so it knows nothing of policies or names"},
	{"internal/network/dns", nil, "questions and answers; how a policy is written is not its business"},
	{"internal/network/share", []string{"internal/network/relay"}, "what several sandboxes do together is counted and delayed; whose they are is not its business"},
	{"internal/network/gateway", []string{"api", "internal/network/dns", "internal/network/policy", "internal/network/relay", "internal/network/secrets", "internal/network/share", "internal/network/sniff", "internal/network/wire"}, "flows of sandboxes; how its process is started, confined and told what to do is not its business"},
	{"internal/network/control", []string{"api", "internal/engine/wire", "internal/network/gateway", "internal/network/held", "internal/network/policy", "internal/network/secrets", "internal/network/share"}, "calls of a daemon and answers to them; how the gateway is started is not its business"},
	{"internal/network/process", []string{"internal/network/control", "internal/network/dns", "internal/network/gateway", "internal/network/held", "internal/network/policy", "internal/network/proxy", "internal/network/replay", "internal/network/treatment", "internal/observe/procfs", "internal/storage/hostfs"}, "one process and its confinement; it does not know the daemon"},
	{"internal/network/host", []string{"api", "internal/engine/hostuser", "internal/network/control", "internal/network/gateway", "internal/network/held", "internal/network/process", "internal/network/wire", "internal/observe/procfs"}, "which gateway runs; what a policy says, and how a sentry is spoken to, is not its business"},
	{"internal/network/sniff", nil, "names in first bytes; which are allowed is not its business"},
	{"internal/network/relay", nil, "bytes between two sockets; why they may pass is not its business"},
	{"internal/network/httprule", nil, "methods and paths; where a request goes, and what becomes of it, is not its business"},
	{"internal/network/ca", nil, "certificates for names; who trusts them, and why a name needs one, is not its business"},
	{"internal/network/secrets", []string{"api", "internal/network/httprule", "internal/storage/hostfs"}, "texts that nobody may read, and what they are bound to; it never sees a request"},
	{"internal/network/proxy", []string{"api", "internal/network/ca", "internal/network/httprule", "internal/network/secrets"}, "requests to names that have rules; which sandboxes there are, and what they may reach, is not its business"},
	{"internal/network/held", []string{"api", "internal/network/httprule", "internal/storage/hostfs"}, "requests that wait; why a verdict falls, and how a request reaches its server, is not its business"},
	{"internal/network/replay", nil, "answers to the same questions; which sandboxes are branches of a fork is not its business"},
	{"internal/network/treatment", []string{"api", "internal/network/ca", "internal/network/gateway", "internal/network/held", "internal/network/policy", "internal/network/proxy", "internal/network/replay", "internal/network/secrets", "internal/storage/hostfs"}, "what becomes of requests; how flows are judged, and how a daemon speaks to the gateway, is not its business"},
	{"internal/network/truststore", nil, "files and variables by which programs trust certificates; it writes none, and does not know why they are trusted"},
	{"internal/storage/paths", []string{"api"}, "it names places and reads nothing there"},
	{"internal/engine/confinement", []string{"internal/engine/hostuser", "internal/engine/wire"}, "what the machine allows; what a sentry is for is not its business"},
	{"internal/engine/hostuser", nil, "numbers that are free; who takes them is not its business"},
	{"internal/engine/cgroup", []string{"api"}, "it does not know what runs in a group"},
	{"internal/service/access", []string{"api"}, "who may see what; it knows neither the things nor how requests reach it"},
	{"internal/service", []string{"internal/service/access", "api"}, "what a machine offers; it knows neither the servers that ask nor the node that answers"},
	{"internal/node/timer", nil, "times and ids; what becomes due is not its business"},
	{"internal/node/timer/timertest", nil, "a clock for tests"},
	{"internal/server/idempotency", []string{"internal/service", "api", "internal/storage/store"}, "what was answered; what was asked is not its business"},
	{"internal/service/audit", []string{"internal/service/access", "api"}, "an entry that is being made; where it is written is not its business"},
	{"internal/server/auditlog", []string{"internal/service/access", "internal/storage/hostfs", "api"}, "lines and their chain; it must never see what was in requests"},
	{"internal/node/quota", []string{"api", "internal/network/policy", "internal/service/audit", "internal/service/access", "internal/storage/store"}, "accounts and what they allow; it measures nothing itself"},
	{"internal/server/token", []string{"internal/service/audit", "internal/service", "internal/service/access", "internal/httpwire", "api", "internal/storage/store"}, "it says who has a secret; what they see is not its business"},
	{"internal/network/document", []string{"api"}, "two notations of one document; what it means is not its business"},
	{"internal/network/profiles", []string{"api", "internal/network/document", "internal/network/policy"}, "documents by name; what runs under them is not its business"},
	{"internal/network/registries", []string{"api", "internal/image/debian/control"}, "what the configuration of a system says; who is allowed to reach that is not its business"},
	{"internal/network/policy", []string{"api"}, "verdicts about connections; it knows neither sockets nor sandboxes nor where documents come from"},
	{"internal/observe/events", []string{"api"}, "a ring with readers; what an event means is not its business"},
	{"internal/storage/store", []string{"api"}, "documents are opaque to it"},
	{"internal/observe/tracing", []string{"api"}, "it is told what happens; who does it is not its business"},
	{"internal/observe/metrics", []string{"api"}, "it is told what happens; who does it is not its business"},
	{"internal/server/portproxy", []string{"internal/service/access", "internal/httpwire", "api"}, "headers, hosts and who was let in; it opens no connection and knows no route"},
	{"internal/server/portguard", []string{"internal/server/front", "api", "internal/httpwire", "internal/server/portproxy"}, "requests that carry a token; which ports there are, and how a sandbox is reached, is not its business"},
	{"internal/httpwire", []string{"api"}, "what server and client agree on; it knows neither"},

	{"internal/storage/pack", []string{"internal/storage/cowfs", "internal/storage/erofs", "internal/storage/pages"}, "files in, archives out: it knows neither what a sandbox nor what an image store is"},
	{"internal/storage/hostfs", nil, "calls of the host; what is written where is not its business"},
	{"internal/storage/hostfs/faultfs", []string{"internal/storage/hostfs"}, "faults for tests"},
	{"internal/image/catalog", []string{"internal/storage/hostfs", "api"}, "files and their order; it does not know how an image is made or who sees it"},
	{"internal/image/choose", []string{"api"}, "it does not know where an index comes from"},
	{"internal/image/registry", []string{"internal/image/choose", "api"}, "it does not know what becomes of an image"},
	{"internal/image", []string{"internal/image/catalog", "internal/image/choose", "internal/image/registry", "internal/storage/erofs", "internal/storage/hostfs", "api"}, "it does not know what a sandbox is made of, or which images run"},
	{"internal/image/debian/fault", []string{"api"}, "errors of a build and their codes; how a build works is not its business"},
	{"internal/image/debian/bounded", []string{"internal/image/debian/fault"}, "reads with bounds; what is read is not its business"},
	{"internal/image/debian/control", []string{"internal/image/debian/fault"}, "texts of packages; where they come from is not its business"},
	{"internal/image/debian/pkgcache", []string{"internal/image/debian/bounded", "internal/image/debian/fault", "api"}, "files by digest; what is in them is not its business"},
	{"internal/image/debian/apt", []string{"internal/image/debian/bounded", "internal/image/debian/control", "internal/image/debian/fault", "api"}, "the configuration of a host; it opens no connection"},
	{"internal/image/debian/archive", []string{"internal/image/debian/apt", "internal/image/debian/bounded", "internal/image/debian/control", "internal/image/debian/fault", "internal/image/debian/pkgcache"}, "what signed archives offer; which packages are taken is not its business"},
	{"internal/image/debian/solve", []string{"internal/image/debian/archive", "internal/image/debian/control", "internal/image/debian/fault"}, "which packages, in which order; it reads no file"},
	{"internal/image/debian/deb", []string{"internal/image/debian/archive", "internal/image/debian/bounded", "internal/image/debian/control", "internal/image/debian/fault", "internal/image/debian/pkgcache"}, "files of packages; where their contents go is not its business"},
	{"internal/image/debian/dpkg", []string{"internal/image/debian/archive", "internal/image/debian/bounded", "internal/image/debian/control", "internal/image/debian/deb", "internal/image/debian/fault"}, "a tree and its database; where packages come from is not its business"},
	{"internal/image/debian", []string{"internal/image/debian/apt", "internal/image/debian/archive", "internal/image/debian/control", "internal/image/debian/deb", "internal/image/debian/dpkg", "internal/image/debian/fault", "internal/image/debian/pkgcache", "internal/image/debian/solve", "api"},
		"it composes a build into a tar stream; who stores it is not its business"},
	{"internal/doctor", []string{"internal/engine/cgroup", "internal/engine/confinement", "internal/engine/hostuser", "internal/engine/idlepoll", "internal/network/truststore", "internal/observe/procfs"}, "it tries the machine, not the daemon"},

	{"internal/engine/launch/launchtest", []string{"internal/engine/launch", "internal/engine/wire", "internal/observe/procfs"}, "sentries for tests"},
	{"internal/engine/launch", []string{"internal/observe/procfs", "internal/engine/cgroup", "internal/engine/confinement", "internal/engine/hostuser", "internal/engine/interp", "internal/engine/memwatch", "api", "internal/observe/tracing", "internal/engine/wire"}, "it must never link gVisor, nor know names, lineage or images"},
	{"internal/node/fsview", []string{"api", "internal/storage/cowfs", "internal/storage/btree"}, "files at one moment; how they are opened is not its business"},
	{"internal/node/compare", []string{"api", "internal/engine/interp", "internal/engine/wire", "internal/node/fsview", "internal/service/audit", "internal/storage/cowfs", "internal/storage/merge", "internal/storage/textdiff", "internal/storage/pages", "internal/storage/treediff"},
		"it is given views of files, processes and variables; it shares the views with what else reads them and never opens one"},
	{"internal/artefact", []string{"api"}, "bytes of snapshots that travel; where they are kept, and what is in a state, is not its business"},
	{"internal/artefact/registry", []string{"api", "internal/artefact", "internal/image/registry"}, "blobs to and from registries; what is in them is not its business"},
	{"internal/machine", []string{"api", "internal/node", "internal/server/auditlog", "internal/server/idempotency", "internal/server/portguard", "internal/server/token", "internal/service", "internal/storage/paths", "internal/storage/store"}, "it composes what a machine offers; it serves no protocol and knows no operation"},
	{"internal/node/memfiles", []string{"api", "internal/engine/launch"}, "open files and who refers to them; what is in them is not its business"},
	{"internal/node/snapdir", []string{"api", "internal/engine/snapfile", "internal/storage/cowfs", "internal/storage/hostfs", "internal/storage/btree", "internal/storage/pages"}, "a directory on disk; which snapshots there are, and who needs whom, is not its business"},
	{"internal/node/images", []string{"api", "internal/image", "internal/image/debian", "internal/image/debian/pkgcache", "internal/node/fsview", "internal/service/audit", "internal/service/access", "internal/storage/cowfs", "internal/storage/pack"},
		"it is given scratch sandboxes and views of files; it never starts a sentry"},
	{"internal/node/dataplane", []string{"api", "internal/engine/interp", "internal/engine/launch", "internal/engine/wire", "internal/service", "internal/service/access"},
		"the inside of sandboxes; it declares what it needs of them, and knows neither how they are made nor how they rest"},
	{"internal/node/published", []string{"api", "internal/peer", "internal/service/access", "internal/service/audit", "internal/storage/store", "internal/tunnel"},
		"ports of the host that lead to sandboxes; how a sandbox is reached, why it ends, and what a token allows, is not its business"},
	{"internal/node/volumes", []string{"api", "internal/engine/launch", "internal/engine/wire", "internal/service/access", "internal/service/audit", "internal/storage/store", "internal/storage/volume"},
		"directories that sandboxes share; how a sandbox is made is not its business"},
	{"internal/node/selfcontrol", []string{"api", "internal/engine/control", "internal/engine/launch", "internal/engine/wire", "internal/service/audit", "internal/service/access", "internal/storage/store"},
		"requests of guests, and what they may cost; how a sandbox is forked or recorded is not its business"},
	{"internal/node/explore", []string{"api", "internal/node/background", "internal/node/transition", "internal/service/access", "internal/service/audit"}, "attempts, their scores and which of them go on; how a sandbox is forked, runs, is compared or ends is not its business"},
	{"internal/node/timeline", []string{"api", "internal/service/access"}, "steps and which of them are tried; it never freezes, restores or destroys a sandbox itself"},
	{"internal/node/transition", []string{"api"}, "which states may follow each other; which things have states is not its business"},
	{"internal/node/freezes", []string{"api", "internal/engine/launch", "internal/engine/snapfile", "internal/engine/wire", "internal/node/fsview", "internal/node/memfiles", "internal/storage/store"}, "moments that others are made from, with the files and the histories that they hold; what a sandbox or a snapshot is, is not its business"},
	{"internal/node/transition/transitiontest", []string{"internal/node/transition"}, "walks tables in tests"},
	{"internal/node/visibility", []string{"internal/service/audit", "internal/service/access"}, "who sees what; how things are kept is not its business"},
	{"internal/node/snapshots", []string{"api", "internal/engine/snapfile", "internal/node/freezes", "internal/node/fsview", "internal/node/memfiles", "internal/node/selfcontrol", "internal/node/snapdir", "internal/node/timer", "internal/node/transition", "internal/node/visibility", "internal/service/audit", "internal/service/access", "internal/storage/paths", "internal/storage/store", "internal/node/reach"}, "freezes with records, of which a grant of self-control is part; what runs in a sandbox, and how it is frozen or restored, is not its business"},
	{"internal/node/portable", []string{"api", "internal/artefact", "internal/artefact/registry", "internal/engine/snapfile", "internal/network/secrets", "internal/node/engines", "internal/node/freezes", "internal/node/fsview", "internal/node/memfiles", "internal/node/networks", "internal/node/quota", "internal/node/reach", "internal/node/snapdir", "internal/node/snapshots", "internal/service/access", "internal/storage/hostfs", "internal/storage/paths"}, "snapshots that leave and arrive; how one is frozen or restored is not its business"},
	{"internal/node/engines", []string{"api", "internal/engine/launch", "internal/storage/hostfs"}, "programs of sentries, by the form of their states; what a snapshot is, is not its business"},
	{"internal/node/spawn", []string{"api", "internal/engine/cgroup", "internal/engine/launch", "internal/engine/wire", "internal/network/wire", "internal/node/freezes", "internal/observe/procfs"}, "a blank sentry becomes a sandbox; which sandboxes there are, and what is recorded of them, is not its business"},
	{"internal/node/trust", []string{"api", "internal/engine/launch", "internal/engine/wire", "internal/network/truststore", "internal/node/freezes", "internal/node/fsview", "internal/node/sandboxes", "internal/node/snapdir", "internal/storage/btree", "internal/storage/cowfs"}, "authorities that sandboxes trust; what they may reach, and how a sandbox is made, is not its business"},
	{"internal/node/reach", []string{"api"}, "what is stored of a network; how it is enforced is not its business"},
	{"internal/node/networks", []string{"api", "internal/engine/launch", "internal/engine/wire", "internal/network/control", "internal/network/gateway", "internal/network/host", "internal/network/policy", "internal/network/profiles", "internal/network/registries", "internal/node/sandboxes", "internal/service/audit", "internal/service/access", "internal/storage/store", "internal/network/ca", "internal/network/held", "internal/network/secrets", "internal/network/share", "internal/node/reach"}, "what sandboxes may reach; how a sandbox is made, and how a gateway is started, is not its business"},
	{"internal/node/background", []string{"api"}, "goroutines that end together; what they do is not its business"},
	{"internal/node/meter", nil, "how long operations take; what they do is not its business"},
	{"internal/node/sandboxes", []string{"api", "internal/engine/launch", "internal/engine/wire", "internal/node/freezes", "internal/node/memfiles", "internal/node/selfcontrol", "internal/node/spawn", "internal/node/timeline", "internal/node/timer", "internal/node/transition", "internal/node/visibility", "internal/observe/events", "internal/service/access", "internal/storage/store", "internal/node/reach"}, "records, instances and their states; why a sandbox is made, rests or ends is not its business"},
	{"internal/node/lineage", []string{"api", "internal/node/sandboxes", "internal/node/selfcontrol", "internal/node/snapshots", "internal/service/access", "internal/storage/store"}, "who descends from whom; how anything is made is not its business"},
	{"internal/node/views", []string{"api", "internal/engine/launch", "internal/engine/snapfile", "internal/engine/wire", "internal/node/freezes", "internal/node/fsview", "internal/node/memfiles", "internal/node/sandboxes", "internal/node/snapdir", "internal/node/snapshots", "internal/storage/btree", "internal/storage/pages"}, "it opens files of one moment; what is done with them is not its business"},
	{"internal/node/accounting", []string{"api", "internal/engine/launch", "internal/node/background", "internal/node/memfiles", "internal/node/meter", "internal/node/quota", "internal/node/sandboxes", "internal/node/snapshots", "internal/node/timer"}, "what sandboxes use; what they may use is decided by package quota"},
	{"internal/node/inspect", []string{"api", "internal/engine/launch", "internal/engine/wire", "internal/node/lineage", "internal/node/sandboxes", "internal/node/snapshots", "internal/node/timer", "internal/service/access"}, "it describes sandboxes, and changes nothing"},
	{"internal/node/capture", []string{"api", "internal/engine/launch", "internal/engine/wire", "internal/node/background", "internal/node/freezes", "internal/node/meter", "internal/node/quota", "internal/node/sandboxes", "internal/node/selfcontrol", "internal/node/snapshots", "internal/node/timer", "internal/storage/store"}, "it freezes sandboxes and keeps what was frozen; what is made of that is not its business"},
	{"internal/node/swap", []string{"api", "internal/engine/launch", "internal/engine/wire", "internal/node/freezes", "internal/node/meter", "internal/node/quota", "internal/node/sandboxes", "internal/node/selfcontrol", "internal/node/snapshots", "internal/node/spawn", "internal/node/trust", "internal/service/audit", "internal/storage/store"}, "another state for a sandbox that exists; why it gets that is not its business"},
	{"internal/node/resting", []string{"api", "internal/engine/launch", "internal/engine/wire", "internal/node/background", "internal/node/capture", "internal/node/freezes", "internal/node/inspect", "internal/node/meter", "internal/node/quota", "internal/node/sandboxes", "internal/node/snapshots", "internal/node/spawn", "internal/node/swap", "internal/node/timer", "internal/node/trust", "internal/storage/store"}, "how sandboxes stop and go on; how they are made is not its business"},
	{"internal/node/branching", []string{"api", "internal/engine/control", "internal/engine/launch", "internal/engine/wire", "internal/node/background", "internal/node/capture", "internal/node/freezes", "internal/node/inspect", "internal/node/lineage", "internal/node/meter", "internal/node/quota", "internal/node/resting", "internal/node/sandboxes", "internal/node/selfcontrol", "internal/node/snapshots", "internal/node/spawn", "internal/node/timer", "internal/node/trust", "internal/service/audit", "internal/service/access", "internal/storage/store", "internal/node/reach", "internal/node/networks"}, "how sandboxes are made; what becomes of them is not its business"},
	{"internal/node/nodetest", []string{"api", "internal/engine/launch", "internal/engine/launch/launchtest", "internal/engine/wire", "internal/node/background", "internal/node/freezes", "internal/node/lineage", "internal/node/memfiles", "internal/node/quota", "internal/node/sandboxes", "internal/node/selfcontrol", "internal/node/snapshots", "internal/node/timer", "internal/service/access", "internal/storage/store"}, "the lower parts of a node for tests"},
	{"internal/node", []string{
		"api",
		"internal/engine/cgroup",
		"internal/engine/launch",
		"internal/engine/wire",
		"internal/image",
		"internal/network/held",
		"internal/network/host",
		"internal/network/profiles",
		"internal/network/secrets",
		"internal/node/accounting",
		"internal/node/background",
		"internal/node/branching",
		"internal/node/engines",
		"internal/node/portable",
		"internal/node/capture",
		"internal/node/compare",
		"internal/node/dataplane",
		"internal/node/explore",
		"internal/node/freezes",
		"internal/node/fsview",
		"internal/node/images",
		"internal/node/inspect",
		"internal/node/lineage",
		"internal/node/memfiles",
		"internal/node/meter",
		"internal/node/networks",
		"internal/node/published",
		"internal/node/quota",
		"internal/node/resting",
		"internal/node/sandboxes",
		"internal/node/selfcontrol",
		"internal/node/snapshots",
		"internal/node/spawn",
		"internal/node/swap",
		"internal/node/timeline",
		"internal/node/timer",
		"internal/node/trust",
		"internal/node/views", "internal/node/volumes",
		"internal/observe/procfs",
		"internal/service",
		"internal/service/access",
		"internal/storage/hostfs",
		"internal/storage/paths",
		"internal/storage/store",
	}, "the use cases; it serves no protocol and must never link gVisor, so that daemon code is tested without it"},

	{"internal/server/surface", nil, "a table of routes, which are elsewhere"},
	{"internal/server/e2b", []string{"internal/server/e2b/build", "internal/server/e2b/egress", "internal/server/e2b/envd", "internal/server/e2b/grant", "internal/server/e2b/interpreter", "internal/server/front", "internal/server/portproxy", "internal/service", "internal/service/access", "internal/service/audit", "internal/httpwire", "internal/peer", "api"}, "another interface to the same service: it must never know an implementation"},
	{"internal/server/front", []string{"internal/service", "internal/service/access", "api"}, "who asks, and for how long; what is asked for is not its business"},
	{"internal/server/e2b/grant", []string{"internal/service", "api"}, "what is derived from a key; what its holder does is not its business"},
	{"internal/server/e2b/egress", []string{"api"}, "two notations of a network; which sandbox has it is not its business"},
	{"internal/server/e2b/build", []string{"internal/service", "internal/service/access", "api"}, "steps that make a state; where it begins, and who may build, it is told"},
	{"internal/server/e2b/envd", []string{"internal/service", "internal/service/access", "internal/service/audit", "api"}, "what is in a sandbox; who may call is not its business"},
	{"internal/server/e2b/interpreter", []string{"internal/server/e2b/envd", "internal/service", "api"}, "cells; who may call is not its business"},
	{"internal/server/rest/drain", nil, "a count; what is counted is not its business"},
	{"internal/server/rest/answer", []string{"internal/service/audit", "internal/httpwire", "api"}, "how failures are told; what failed is not its business"},
	{"internal/server/rest/stream", []string{"internal/server/rest/answer", "internal/httpwire", "internal/peer", "api"}, "how bytes are framed; what they mean is not its business"},
	{"internal/server/rest/auth", []string{"internal/server/front", "internal/server/rest/stream", "internal/server/portproxy", "internal/service", "internal/service/access", "internal/httpwire", "api"}, "who asks and what routes demand; it knows no operation"},
	{"internal/server/rest/route", []string{"internal/server/rest/answer", "internal/server/rest/auth", "internal/server/portproxy", "internal/service/access", "internal/httpwire", "api"}, "how operations are described; it never calls the service"},
	{"internal/server/rest/openapi", []string{"internal/server/rest/auth", "internal/server/rest/route", "internal/httpwire", "api"}, "it describes operations and serves none"},
	{"internal/server/rest/idempotent", []string{"internal/server/rest/answer", "internal/server/rest/route", "internal/service/audit", "internal/service", "internal/service/access", "internal/httpwire", "api"}, "it repeats answers; it knows no operation"},
	{"internal/server/rest/control", []string{"internal/server/rest/answer", "internal/server/rest/route", "internal/server/rest/stream", "internal/service", "internal/service/access", "internal/httpwire", "api"}, "operations on sandboxes as wholes; it shares nothing with those inside of them but the ways to answer"},
	{"internal/server/rest/dataplane", []string{"internal/server/front", "internal/server/rest/answer", "internal/server/rest/auth", "internal/server/rest/route", "internal/server/rest/stream", "internal/server/portproxy", "internal/service", "internal/service/access", "internal/httpwire", "internal/peer", "internal/tunnel", "api"}, "operations inside of sandboxes; it shares nothing with those on sandboxes as wholes but the ways to answer"},
	{"internal/server/rest", []string{
		"internal/server/front", "internal/server/rest/answer", "internal/server/rest/auth", "internal/server/rest/control", "internal/server/rest/dataplane", "internal/server/rest/drain", "internal/server/rest/idempotent", "internal/server/rest/openapi", "internal/server/rest/route", "internal/server/rest/stream",
		"internal/service", "internal/service/access", "internal/service/audit", "internal/httpwire", "internal/server/portproxy", "api",
	}, "a protocol; it must never know an implementation of what it serves"},
	{"internal/server/rest/apitest", []string{"internal/service", "internal/service/access", "internal/server/rest", "api"}, "a service for tests"},
	{"internal/workload/fakedaemon", []string{"client", "internal/service", "internal/server/rest/apitest", "internal/httpwire", "api", "internal/workload"}, "a daemon for tests"},
	{"client", []string{"internal/httpwire", "internal/peer", "api"}, "how a daemon is found or started is not its business"},
	{"sdk/bench/calls", []string{"client", "api"}, "it measures what users of the client have, and uses nothing else"},
	{"internal/daemon", []string{"internal/service", "internal/service/access", "client", "internal/server/rest", "internal/httpwire", "internal/storage/paths", "internal/server/portproxy", "api"}, "it must never know what a Service does"},
	{"internal/mcp", []string{"client", "api"}, "tools for agents: what they can do, REST can do; rights are those of the client"},
	{"internal/cli/console", []string{"api"}, "a terminal and text; it talks to no daemon"},
	{"internal/cli/values", []string{"api", "internal/network/document"}, "options and arguments; it parses, and api judges"},
	{"internal/cli/describe", []string{"api"}, "words for objects that it is given"},
	{"internal/cli/config", []string{"api"}, "names and values of flags; what they mean is not its business"},
	{"internal/cli/session", []string{"client", "internal/cli/console", "internal/cli/describe", "internal/cli/values", "internal/httpwire", "api"}, "what all commands share; it knows no command"},
	{"internal/cli/sandboxes", []string{"client", "internal/cli/console", "internal/cli/describe", "internal/cli/session", "internal/cli/values", "api"}, "commands: what they can do, REST can do"},
	{"internal/cli/lineage", []string{"client", "internal/cli/console", "internal/cli/describe", "internal/cli/session", "internal/cli/values", "api"}, "commands: what they can do, REST can do"},
	{"internal/cli/explore", []string{"client", "internal/cli/console", "internal/cli/describe", "internal/cli/session", "internal/cli/values", "internal/network/document", "api"}, "commands: what they can do, REST can do"},
	{"internal/cli/network", []string{"client", "internal/cli/console", "internal/cli/describe", "internal/cli/session", "internal/cli/values", "internal/network/document", "api"}, "commands: what they can do, REST can do"},
	{"internal/cli/volumes", []string{"client", "internal/cli/console", "internal/cli/session", "internal/cli/values", "api"}, "commands: what they can do, REST can do"},
	{"internal/cli/run", []string{"client", "internal/cli/console", "internal/cli/session", "internal/cli/values", "api"}, "commands: what they can do, REST can do"},
	{"internal/cli/processes", []string{"client", "internal/cli/console", "internal/cli/describe", "internal/cli/session", "internal/cli/values", "internal/httpwire", "internal/peer", "api"}, "commands: what they can do, REST can do"},
	{"internal/cli/files", []string{"client", "internal/cli/console", "internal/cli/describe", "internal/cli/session", "internal/cli/values", "api"}, "commands: what they can do, REST can do"},
	{"internal/cli/compare", []string{"client", "internal/cli/console", "internal/cli/session", "internal/cli/values", "api"}, "commands: what they can do, REST can do"},
	{"internal/build/dockerfile", []string{"api"}, "a text and a plan; how a step is carried out, and where files are, is not its business"},
	{"internal/build/contextdir", []string{"api"}, "files of a directory that is not trusted; where they go is not its business"},
	{"internal/build", []string{"api", "client", "internal/build/contextdir", "internal/build/dockerfile"}, "it builds with what any user of the client has"},
	{"internal/cli/images", []string{"client", "internal/build", "internal/build/contextdir", "internal/cli/console", "internal/cli/describe", "internal/cli/session", "internal/cli/values", "api"}, "commands: what they can do, REST can do"},
	{"internal/cli/service", []string{"client", "internal/cli/console", "internal/cli/describe", "internal/cli/session", "internal/cli/values", "internal/httpwire", "api"}, "commands: what they can do, REST can do"},
	{"internal/cli", []string{
		"client", "internal/cli/compare", "internal/cli/config", "internal/cli/console", "internal/cli/explore", "internal/cli/files", "internal/cli/images", "internal/cli/lineage", "internal/cli/network", "internal/cli/processes", "internal/cli/run", "internal/cli/sandboxes",
		"internal/cli/service", "internal/cli/session", "internal/cli/values", "internal/cli/volumes", "internal/mcp", "skills", "internal/httpwire", "api",
	}, "the command line is a client like any other: what it can do, REST can do"},
	{"internal/workload", []string{"client", "api"}, "it finds out what any user of the client could"},
	{"internal/demo", []string{"client", "api", "internal/workload"}, "it shows what any user of the client can do"},
	{"internal/bench/outside", []string{}, "it serves whoever connects"},
	{"internal/bench/speed", []string{}, "a piece of work and a clock"},
	{"internal/bench/stock", []string{"client", "api"}, "what runsc needs, and nothing of what is measured"},
	{"internal/bench/first", []string{"client", "internal/workload"}, "what a new daemon does; how one is started it is told"},
	{"internal/bench/cost", []string{"internal/bench/speed", "internal/observe/procfs"}, "processes and memory; what they are for is not its business"},
	{"internal/bench/machine", []string{"internal/observe/procfs"}, "a machine; what is measured on it is not its business"},
	{"internal/bench/programs", []string{"api", "client", "internal/workload"}, "programs; how they are forked and measured is not its business"},
	{"internal/bench/transfer", []string{"api", "client"}, "bytes through the daemon; what is measured is not its business"},
	{"internal/bench/work", []string{"api", "client"}, "work and its times; what they are compared with is not its business"},
	{"internal/bench", []string{"client", "internal/bench/transfer", "internal/bench/work", "internal/bench/cost", "internal/bench/machine", "internal/bench/programs", "internal/bench/first", "internal/bench/outside", "internal/bench/speed", "internal/bench/stock", "internal/engine/idlepoll", "internal/observe/procfs", "api", "internal/workload"}, "it measures as a user would; it must not ask the engine, and it holds a setting of the machine to measure its worth"},

	{"internal/sentry", []string{"internal/engine/interp", "api", "internal/sentry/codectx", "internal/sentry/guest", "internal/sentry/guestfs", "internal/sentry/platforms", "internal/sentry/ports", "internal/sentry/proc", "internal/sentry/selfctl", "internal/sentry/selffork", "internal/sentry/volumes", "internal/engine/wire"}, "the confined side: short enough to be audited alone"},
	{"internal/sentry/guest", []string{
		"api", "internal/engine/snapfile", "internal/engine/wire", "internal/sentry/aside", "internal/sentry/birth", "internal/sentry/codectx", "internal/sentry/cow", "internal/sentry/dormant", "internal/sentry/fspatch", "internal/sentry/gate", "internal/sentry/guestfs", "internal/sentry/guestinit", "internal/sentry/hostsfile",
		"internal/sentry/kern", "internal/sentry/limitfs", "internal/sentry/netspaces", "internal/sentry/paired", "internal/sentry/platforms", "internal/sentry/ports", "internal/sentry/proc", "internal/sentry/reseed", "internal/sentry/rootfs", "internal/sentry/rootfs/inode", "internal/sentry/selfctl", "internal/sentry/selffork", "internal/sentry/spawn", "internal/sentry/stages",
		"internal/sentry/syscalls", "internal/storage/cowfs", "internal/sentry/uplink", "internal/sentry/volumes", "internal/storage/pages",
	}, "the confined side; how calls reach it is not its business"},
	{"internal/sentry/gate", []string{"api"}, "who may use the kernel, and when; what they do with it is not its business"},
	{"internal/sentry/kern", []string{"api"}, "what operations look up in the kernel; when they may is the gate's business"},
	{"internal/sentry/guestfs", []string{"api", "internal/engine/wire", "internal/sentry/gate", "internal/sentry/guestfs/names", "internal/sentry/kern"}, "files of a sandbox; what else its kernel runs is not its business"},
	{"internal/sentry/guestfs/names", []string{"api"}, "strings; where they come from is not its business"},
	{"internal/sentry/ports", []string{"api", "internal/sentry/gate", "internal/sentry/kern"}, "ends of connections in a sandbox; what is said on them is not its business"},
	{"internal/sentry/volumes", []string{"api", "internal/engine/wire", "internal/sentry/kern", "internal/sentry/saved"}, "files that the daemon keeps; who may use them is not its business"},
	{"internal/sentry/netsock", []string{}, "fields of sockets; which are lost is not its business"},
	{"internal/sentry/paired", []string{"internal/network/wire"}, "sockets and descriptors; how the gateway is asked is not its business"},
	{"internal/sentry/uplink", []string{"api", "internal/network/wire", "internal/sentry/gate", "internal/sentry/netsock", "internal/sentry/paired"}, "the guest's way to the gateway; what may pass is not its business"},
	{"internal/sentry/selfctl", []string{"api", "internal/engine/control", "internal/engine/wire", "internal/sentry/gate", "internal/sentry/kern"}, "requests of a sandbox about itself and their answers; what they ask for is not its business"},
	{"internal/sentry/spawn", []string{"api", "internal/engine/wire", "internal/sentry/kern"}, "how a process is made; what becomes of it is not its business"},
	{"internal/sentry/proc", []string{"api", "internal/engine/snapfile", "internal/engine/wire", "internal/sentry/gate", "internal/sentry/kern", "internal/sentry/saved", "internal/sentry/spawn", "internal/sentry/stages"}, "processes that were started from outside; what they run is not its business"},
	{"internal/sentry/codectx", []string{"api", "internal/engine/interp", "internal/engine/wire", "internal/sentry/gate", "internal/sentry/kern", "internal/sentry/saved", "internal/sentry/spawn", "internal/sentry/stages"}, "interpreters and their runs; what code does is not its business"},
	{"internal/sentry/fspatch", []string{"api", "internal/engine/wire", "internal/sentry/gate", "internal/sentry/kern", "internal/sentry/rootfs", "internal/sentry/stages", "internal/storage/cowfs", "internal/storage/pages", "internal/storage/treediff", "internal/storage/btree"}, "changes of files at once; where they come from is not its business"},
	{"internal/sentry/datagrams", []string{"internal/sentry/saved"}, "senders of unix datagrams; which sandbox sends is not its business"},
	{"internal/sentry/syscalls", []string{"internal/sentry/datagrams", "internal/sentry/limitfs", "internal/sentry/reseed", "internal/sentry/rootfs"}, "system calls; which sandbox makes them is not their business"},
	{"internal/sentry/stages", []string{"internal/engine/wire"}, "a stopwatch: it does not know what it measures"},
	{"internal/sentry/saved", nil, "loops over fields: it does not know the types"},
	{"internal/sentry/savedtest", nil, "a check for tests"},
	{"internal/sentry/selffork", nil, "a process and its threads: it does not know what they do, nor gVisor"},
	{"internal/sentry/systraptuning", nil, "when the platform pays ahead: it does not know what a sandbox is"},
	{"internal/sentry/cow", []string{"internal/engine/snapfile", "internal/sentry/saved"}, "memory only: it does not know what a sandbox is"},
	{"internal/sentry/aside", []string{"api", "internal/sentry/cow", "internal/sentry/kern", "internal/sentry/saved", "internal/sentry/uplink"}, "what is kept while a kernel is saved; what a save is for is not its business"},
	{"internal/sentry/netspaces", []string{"api", "internal/sentry/aside", "internal/sentry/paired", "internal/sentry/saved", "internal/sentry/uplink"}, "network stacks over a save; what a save is for is not its business"},
	{"internal/sentry/platforms", []string{"internal/sentry/birth", "internal/sentry/systraptuning"}, "how guest code runs: it does not know what a sandbox is"},
	{"internal/sentry/birth", []string{"internal/sentry/fpstate"}, "where the start of the platform pauses: it does not know what a sandbox is"},
	{"internal/sentry/dormant", nil, "which processes need one of the host: it does not know what a sandbox is"},
	{"internal/sentry/fpstate", nil, "registers only: it does not know what a sandbox is"},
	{"internal/sentry/limitfs", []string{"internal/sentry/saved"}, "numbers to show: it does not know what a sandbox is"},
	{"internal/sentry/reseed", nil, "random generators of programs: it does not know what a sandbox is"},
	{"internal/sentry/rootfs/inode", []string{"internal/sentry/saved", "internal/storage/cowfs", "internal/storage/pages"}, "files in memory; their names, and how they are opened, are not its business"},
	{"internal/sentry/rootfs", []string{"internal/sentry/rootfs/inode", "internal/sentry/saved", "internal/storage/cowfs", "internal/storage/pages"}, "names of files and open files: it does not know what a sandbox is"},

	{"cmd/ramet", []string{
		"internal/bench", "internal/bench/stock", "internal/cli", "client", "internal/daemon", "internal/demo", "internal/doctor", "internal/service",
		"internal/engine/idlepoll", "internal/machine", "internal/node", "internal/node/meter", "internal/observe/metrics", "internal/storage/paths", "api", "internal/engine/sentrybin", "internal/observe/procfs", "internal/network/ca", "internal/observe/tracing", "internal/server/e2b", "internal/server/e2b/grant", "internal/server/portproxy", "internal/storage/hostfs", "internal/workload",
	}, "the composition root; it must never link gVisor: the sentry is a program of its own, embedded"},
	{"cmd/ramet-sentry", []string{"internal/sentry"}, "it starts for every sandbox, so it links nothing that a sandbox does not need"},
	{"cmd/ramet-gateway", []string{"internal/network/process"}, "strangers talk to it, so it links nothing that the gateway does not need"},
	{"cmd/ramet-guest", []string{"internal/engine/control"}, "it runs inside of sandboxes, as a stranger's program"},
	{"test/harness", []string{
		"api", "client", "internal/engine/control", "internal/image", "internal/image/debian", "internal/machine", "internal/node", "internal/node/meter", "internal/node/quota", "internal/node/timer", "internal/network/control", "internal/network/process", "internal/sentry",
		"internal/server/rest", "internal/server/rest/apitest", "internal/service", "internal/service/access", "internal/storage/paths",
		"internal/polltest",
	}, "what suites share; it asserts what must hold after any test, and nothing that only one suite is about"},
	{"test/compare", nil, "tests only"},
	{"test/fork", nil, "tests only"},
	{"test/fs", nil, "tests only"},
	{"test/image", nil, "tests only"},
	{"test/install", nil, "tests only"},
	{"test/network", nil, "tests only"},
	{"test/node", nil, "tests only"},
	{"test/process", nil, "tests only"},
	{"test/snapshot", nil, "tests only"},
	{"test/restapi", nil, "tests only, of the daemon as others see it"},
	{"test/docs", nil, "tests only, of the program as a reader sees it"},
	{"test/guest", nil, "it runs inside of a sandbox, as a stranger's program"},
	{"test/network/talker", nil, "it runs inside of a sandbox, as a stranger's program"},
}

// testSupport are the packages that exist for the tests of others.
var testSupport = []string{"test/harness", "internal/polltest", "internal/judges", "internal/node/transition/transitiontest", "internal/engine/launch/launchtest", "internal/node/nodetest", "internal/sentry/savedtest", "internal/server/rest/apitest", "internal/workload/fakedaemon", "internal/storage/hostfs/faultfs", "internal/storage/erofs/erofstest", "internal/storage/pages/pagestest"}

// restricted are imports that few may have: a path, or all below it. Tests are
// held to it too.
var restricted = []struct {
	path   string
	users  []string // directories, with all below them
	tests  []string // directories whose tests may besides
	reason string
}{
	{"gvisor.dev/gvisor", []string{"internal/sentry"}, []string{"internal/storage/erofs", "internal/image"},
		"a change of gVisor must reach one tree only; the tests of images use its reader as an oracle"},
	{module + "/internal/sentry", []string{"internal/sentry", "cmd/ramet-sentry", "test/harness"}, []string{"test"},
		"the daemon and the sentry meet in package wire only; tests let their own binary be a sentry"},
	{module + "/test", []string{"test"}, nil, "a harness made for tests must never be part of the product"},
	{module + "/internal/server/rest/apitest", testSupport, []string{"."}, "a service made for tests must never be served"},
	{module + "/internal/workload/fakedaemon", nil, []string{"."}, "a daemon made for tests must never be served"},
	{module + "/internal/storage/hostfs/faultfs", nil, []string{"."}, "faults made for tests must never befall users"},
	{"modernc.org/sqlite", []string{"internal/storage/store", "internal/storage/volume"}, []string{"test"}, "how records are kept is known in one place, and how names in volumes are"},
	{"database/sql", []string{"internal/storage/store", "internal/storage/volume", "test/harness"}, []string{"test"}, "how records are kept is known in one place; tests look from outside"},
	{"github.com/danielgtaylor/huma", []string{"internal/server/rest"}, nil, "the REST framework can be replaced in one package"},
	{"github.com/prometheus/procfs", []string{"internal/observe/procfs"}, nil, "proc(5) is read in one place"},
	{"github.com/prometheus", []string{"internal/observe/metrics", "internal/observe/procfs"}, nil, "what is counted is known in many places, how it is read in one"},
	{"go.opentelemetry.io", []string{"internal/observe/tracing"}, nil, "how traces are made is known in one place"},
	{"github.com/chromedp", nil, []string{"internal/server/rest"}, "a browser is for tests"},
	{"github.com/modelcontextprotocol/go-sdk", []string{"internal/mcp"}, []string{"test/docs"}, "the protocol is spoken in one place"},
	{"github.com/spf13/cobra", []string{"internal/cli"}, nil, "the command line framework can be replaced in one package"},
	{"github.com/google/go-containerregistry", []string{"internal/artefact/registry", "internal/image", "internal/storage/pack"}, []string{"test/image", "test/snapshot"}, "registries are known in one place; archives are written with its types of documents"},
	{"github.com/ProtonMail/go-crypto", []string{"internal/image/debian/archive"}, []string{"internal/image/debian"}, "signatures are checked in one place"},
	{"go.yaml.in/yaml", []string{"internal/network/document"}, []string{"."}, "a document is JSON everywhere else"},
	{"github.com/BurntSushi/toml", []string{"internal/cli/config", "internal/network/registries"}, nil, "files of people are TOML"},
	{"golang.org/x/net/idna", []string{"internal/network/policy"}, nil, "names are brought to one form in one place"},
	{"github.com/moby/profiles", nil, []string{"test/node"}, "the filter of containers is for tests"},
	{"github.com/elastic/go-seccomp-bpf", []string{"internal/network/process"}, []string{"test/node"}, "the gateway's filter of system calls; a sentry has gVisor's"},
	{"github.com/landlock-lsm", []string{"internal/engine/confinement", "internal/network/process", "internal/sentry"}, nil, "each process is confined in one place"},
	{"github.com/miekg/dns", []string{"internal/network/dns"}, []string{"internal/network"}, "messages of DNS are known in one place"},
	{"testing", testSupport, []string{"."}, "test code is not for the product"},
	{"math/rand", nil, nil, "the generator of the old package can be seeded by accident: use math/rand/v2 or crypto/rand"},
	{"io/ioutil", nil, nil, "it is deprecated"},
	{"log", nil, []string{"internal/image", "test/snapshot"}, "use log/slog, with a logger that was passed in"},
	{"net/http/pprof", nil, nil, "it serves the state of the daemon to whoever reaches its mux"},
	{"C", nil, nil, "the product is built with CGO_ENABLED=0, see package harness"},
}

// within reports whether dir is one of dirs or below one.
func within(dir string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		return d == "." || dir == d || strings.HasPrefix(dir, d+"/")
	})
}

// importFaults returns what is wrong with one import of a file.
func importFaults(file, imported string) []string {
	dir, isTest := path.Dir(file), strings.HasSuffix(file, "_test.go")
	var faults []string
	for _, r := range restricted {
		if imported != r.path && (!strings.HasPrefix(imported, r.path+"/") || r.path == "log") {
			continue
		}
		if r.path == "math/rand" && imported != r.path || r.path == "testing" && imported != r.path {
			continue // math/rand/v2, testing/iotest
		}
		if !within(dir, r.users) && !(isTest && within(dir, r.tests)) {
			faults = append(faults, "must not import "+imported+": "+r.reason)
		}
	}
	ours, isOurs := strings.CutPrefix(imported, module+"/")
	if !isOurs || isTest {
		return faults
	}
	for _, a := range arrows {
		if a.from == dir && !slices.Contains(a.to, ours) {
			faults = append(faults, "must not import "+ours+": "+a.reason)
		}
	}
	return faults
}

func TestImports(t *testing.T) {
	known := map[string]bool{}
	for _, a := range arrows {
		known[a.from] = true
	}
	for _, s := range goFiles(t) {
		if !s.isTest() && !known[s.dir] {
			t.Errorf("package %s is not in the picture: add it to arrows, with what it may import and why no more", s.dir)
			known[s.dir] = true // once is enough
		}
		for _, spec := range s.ast.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range importFaults(s.file, imported) {
				t.Errorf("%s %s", s.at(spec), fault)
			}
		}
	}
}

// TestSentriesDoNotLinkHTTP follows the imports of ours that a sentry is made of: what
// one of them links, each sandbox starts.
func TestSentriesDoNotLinkHTTP(t *testing.T) {
	files := map[string][]*source{}
	for _, s := range goFiles(t) {
		if !s.isTest() {
			files[s.dir] = append(files[s.dir], s)
		}
	}
	seen := map[string]bool{}
	var visit func(dir string)
	visit = func(dir string) {
		if seen[dir] {
			return
		}
		seen[dir] = true
		for _, s := range files[dir] {
			for _, spec := range s.ast.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if imported == "net/http" {
					t.Errorf("%s must not import net/http: every sentry would link and initialize it", s.at(spec))
				}
				if ours, isOurs := strings.CutPrefix(imported, module+"/"); isOurs {
					visit(ours)
				}
			}
		}
	}
	visit("cmd/ramet-sentry")
	if !seen["api"] {
		t.Error("api was not found among the packages of a sentry")
	}
}

// TestArrowsHaveNoCycles keeps the table itself honest: the compiler sees the
// arrows that are used, not those that are allowed.
func TestArrowsHaveNoCycles(t *testing.T) {
	to := map[string][]string{}
	for _, a := range arrows {
		if _, twice := to[a.from]; twice {
			t.Errorf("%s is in the table twice", a.from)
		}
		if a.reason == "" {
			t.Errorf("%s has no reason", a.from)
		}
		to[a.from] = a.to
	}
	const entered, left = 1, 2
	state := map[string]int{}
	var visit func(string)
	visit = func(p string) {
		if state[p] == entered {
			t.Errorf("%s can import itself", p)
		}
		if state[p] != 0 {
			return
		}
		state[p] = entered
		for _, q := range to[p] {
			if _, ok := to[q]; !ok {
				t.Errorf("%s may import %s, which is not in the table", p, q)
			}
			visit(q)
		}
		state[p] = left
	}
	for _, a := range arrows {
		visit(a.from)
	}
}

func TestImportFaultsAreFound(t *testing.T) {
	for _, c := range []struct {
		file, imported string
		faults         int
	}{
		{"internal/cli/x.go", module + "/internal/node", 1},
		{"internal/cli/x.go", module + "/client", 0},
		{"internal/cli/x_test.go", module + "/internal/server/rest/apitest", 0},
		{"internal/daemon/x.go", module + "/internal/server/rest/apitest", 2},
		{"internal/node/x.go", module + "/internal/sentry", 2},
		{"internal/node/x_test.go", module + "/internal/sentry", 1},
		{"internal/node/x.go", "gvisor.dev/gvisor/pkg/log", 1},
		{"internal/sentry/cow/x.go", "gvisor.dev/gvisor/pkg/log", 0},
		{"internal/storage/erofs/x_test.go", "gvisor.dev/gvisor/pkg/erofs", 0},
		{"internal/storage/erofs/x.go", "gvisor.dev/gvisor/pkg/erofs", 1},
		{"test/fork/x_test.go", module + "/internal/sentry", 0},
		{"internal/engine/wire/x.go", "math/rand/v2", 0},
		{"internal/engine/wire/x.go", "math/rand", 1},
		{"internal/engine/wire/x.go", "log/slog", 0},
		{"internal/engine/wire/x.go", "log", 1},
		{"internal/engine/wire/x.go", "testing", 1},
		{"internal/engine/wire/x_test.go", "testing/iotest", 0},
	} {
		if got := importFaults(c.file, c.imported); len(got) != c.faults {
			t.Errorf("%s importing %s: %q, want %d faults", c.file, c.imported, got, c.faults)
		}
	}
}
