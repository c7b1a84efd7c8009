package openapi

import "github.com/danielgtaylor/huma/v2"

// tags are the groups of operations, in the order of the document.
var tags = []*huma.Tag{
	{Name: "sandboxes", Description: "Isolated systems with files, memory and processes of their own."},
	{Name: "processes", Description: "Commands and background processes in a sandbox, with their input and output."},
	{Name: "contexts", Description: "Stateful interpreters of Python, Node and Bash in a sandbox."},
	{Name: "files", Description: "Files and directories in a sandbox."},
	{Name: "ports", Description: "TCP ports that processes in a sandbox listen on."},
	{Name: "forks", Description: "Copies of live sandboxes, how they differ, and how they become one again."},
	{Name: "snapshots", Description: "Frozen states that any number of sandboxes can be restored from."},
	{Name: "timeline", Description: "States that a sandbox with automatic checkpoints can return to."},
	{Name: "images", Description: "Read-only root file systems that sandboxes are created from."},
	{Name: "exports", Description: "Files of sandboxes and snapshots as archives and images."},
	{Name: "events", Description: "What happens to sandboxes."},
	{Name: "tokens", Description: "Secrets by which others than the owner of the daemon use it."},
	{Name: "tenants", Description: "Groups of users that see nothing of each other, and what they may have."},
	{Name: "audit", Description: "Who did what, in lines that are chained by digests."},
	{Name: "daemon", Description: "The daemon itself: health, metrics and this document."},
}

// Parts of several descriptions.
const (
	needsRunning = " The sandbox must be running; one that is hibernated, or was paused by its idle timeout, wakes first unless its lifecycle says otherwise."
	asEvents     = " With `Accept: text/event-stream` the answer is a stream of events, of which the last one is the result or the error."
	pathsAsBytes = " Paths are absolute, and may have any bytes but NUL, percent-encoded."
)

// descriptions are the descriptions of the operations, by id.
var descriptions = map[string]string{
	"get-health":    "Answers 200 for as long as the daemon serves requests. It needs no token.",
	"get-readiness": "Answers 200 while new requests are taken, and 503 once the daemon is about to end. It needs no token.",
	"get-metrics":   "Counters and histograms in the text format of Prometheus, over all tenants.",
	"get-openapi":   "OpenAPI 3.1, generated from the types that the daemon decodes and encodes. It needs no token.",

	"create-sandbox":    "Starts a sandbox from an image, or from a snapshot, whose processes then go on. The answer comes when commands can run in it. Limits that are absent are the daemon's defaults; the effective ones are in the answer.",
	"list-sandboxes":    "Sandboxes that the caller sees, the oldest first, one page at a time. Filters are combined by and. Memory and disk are left out: ask for one sandbox.",
	"get-sandbox":       "One sandbox, with its effective limits, its isolation, and the memory and disk that it occupies now.",
	"update-sandbox":    "Changes what is given and leaves the rest. A metadata key with null is removed. At least one of name, metadata and lifecycle must be given.",
	"destroy-sandbox":   "Ends all processes of the sandbox and removes its files. Children and snapshots of it are not touched. A second call is an error of 404.",
	"pause-sandbox":     "All processes stand still, and take no processor time; their memory stays.",
	"resume-sandbox":    "The processes go on where they stood still.",
	"hibernate-sandbox": "Writes files, memory and processes to disk and frees the memory of the host. The sandbox keeps its id, and a request that needs it wakes it unless its lifecycle says otherwise.",
	"wake-sandbox":      "Brings a hibernated sandbox back to memory; its processes go on.",
	"get-stats":         "Memory, disk, processor time and number of processes. A sandbox that is hibernated or still being made has no memory and no processes.",

	"exec-command":    "Runs one command to its end. A command that fails is a result and no error: see `exit_code`, `signal` and `ok`. Without a stream, the first 8 MiB of each output are kept. When the client goes away the command is killed with its process group." + asEvents + " With `Accept: application/vnd.ramet.frames` it is a stream of frames, for clients that read much output." + needsRunning,
	"open-exec":       "Runs one command with standard input over a WebSocket. The client's first text message is an ExecRequest; binary messages begin with a byte 0 (standard input; nothing after it is its end), 1 (stdout) or 2 (stderr). The server's last message is text: `{\"exit\": ExecResult}` or `{\"error\": Problem}`." + needsRunning,
	"list-processes":  "What runs in the sandbox, whoever started it; with `all` also what was started by this interface and has ended.",
	"start-process":   "Starts a process that needs no client: it goes on when the client has gone away, and the end of its output is kept. Read that with read-output, follow it with attach-process, and wait for its end with wait-process." + needsRunning,
	"get-process":     "One process, running or kept.",
	"remove-process":  "Only for processes that were started by this interface. One that runs is killed with its process group.",
	"wait-process":    "Blocks until the process has ended, and answers how. Only for processes that were started by this interface.",
	"signal-process":  "Any process in the sandbox can be signalled, whoever started it.",
	"resize-process":  "The process is told by SIGWINCH, as by a terminal. It must have been started with a terminal.",
	"write-process":   "The body goes to standard input, and with `end` that is closed afterwards. The call blocks while the process does not read. The process must have been started with `stdin` or a terminal.",
	"read-output":     "Output of one process that was started by this interface, from any sequence number that is still kept. The id of an event is the sequence number to go on from, so a client that lost its connection continues with the header Last-Event-ID.",
	"read-logs":       "Output of all processes that were started by this interface, in the order in which it was written.",
	"attach-process":  "Follows and feeds a process over a WebSocket; when the connection ends, the process goes on. From the client: binary messages that begin with a byte 0 (input; nothing after it is its end), and text, Control. From the server: binary messages of output, which begin with the stream (a byte 1 or 2), the sequence number of the first byte and the time in nanoseconds since 1970 (8 bytes each, big-endian), and text, AttachMessage; the last one has a position or an error.",
	"create-context":  "Starts an interpreter that keeps its variables from one cell to the next, and in forks of the sandbox. The interpreter must be in the image." + needsRunning,
	"list-contexts":   "Interpreters of the sandbox, with what they do now and how many cells wait for their turn.",
	"delete-context":  "Kills the interpreter and forgets the context.",
	"restart-context": "Variables are lost; what runs is killed, and cells that wait are run by the new interpreter.",
	"run-code":        "Runs one cell in a context, after those that came before. Without a context, the default one of the language runs it, and is made when it is first needed. A cell that fails is a result and no error: see `error`." + asEvents + needsRunning,

	"interrupt-context": "The cell gets what Ctrl-C would give it. It may ignore that and go on: a restart of the context ends it.",

	"stat-file":      "Type, size, mode, owner and times of a file, and of a regular file its ETag." + pathsAsBytes,
	"make-directory": "An error of 409 if something is there already, unless `parents` is given and it is a directory." + pathsAsBytes,
	"move-file":      "A file that is at the new path is replaced, unless `keep` is given." + pathsAsBytes,
	"change-mode":    "Sets the mode, with `recursive` of all that is below a directory as well." + pathsAsBytes,
	"remove-file":    "A directory must be empty unless `recursive` is given. With If-Match only the version that the client knows is removed." + pathsAsBytes,
	"list-files":     "Entries of a directory in the order of their names, one page at a time; what is below a directory follows it." + pathsAsBytes,
	"search-files":   "Lines that contain a text or match a regular expression, or files whose names match a pattern. At least one of `name` and `content` must be given." + pathsAsBytes,
	"watch-files":    "The first event says that the watch has begun. Changes are collected for `debounce_ms` and told as one event." + pathsAsBytes,
	"read-file":      "The contents as they are. Ranges and If-None-Match work as RFC 9110 says; several ranges are answered as multipart/byteranges." + pathsAsBytes,
	"head-file":      "The headers of read-file, without the contents." + pathsAsBytes,
	"write-file":     "The body is the contents, of any length. If-Match and If-None-Match guard against overwriting what somebody else has written." + pathsAsBytes,
	"read-archive":   "A tar with all that is at the path. One that is cut off ends without the end of its HTTP message." + pathsAsBytes,
	"write-archive":  "The body is a tar, of any length. Entries that lead out of the directory are refused." + pathsAsBytes,

	"list-ports":        "Ports on which processes in the sandbox listen, TCP and UDP.",
	"reach-port":        "Waits until the port is listened on, and answers by whom. With `Connection: Upgrade` and `Upgrade: tcp` the connection becomes one to the port: after `101 Switching Protocols` all bytes are passed on in both directions, and each ends by itself.",
	"proxy-port":        "Passes a request of a program on to a web server in the sandbox. All methods, WebSockets and streams are passed on, as is the path behind the port with its query; `X-Forwarded-Prefix` tells the server what comes before. Pages are not shown to browsers here: they have hosts of their own, see `open-port-session`. Requests whose Host is PORT-SANDBOX.DOMAIN are passed on too, with the whole path: for that, the `_` of an id is written `-`, and DOMAIN is `localhost` unless the daemon was told another.",
	"open-port-session": "Answers with a URL that a browser can open once, at a host of this port alone. There it gets a cookie, by which it reaches this port and nothing else, for at most 12 hours and no longer than the caller's token is valid and the daemon runs.",

	"fork-sandbox":    "Makes children that have everything of the running source: files, memory, processes and open files. The source stands still for milliseconds and shares its memory with the children, copy-on-write. A child that fails is an entry with an error; the request fails if there is no child at all. If the client or the daemon goes away meanwhile, nothing half-made is left." + needsRunning,
	"promote-sandbox": "The parent goes on with the state of this child, under its own id and name, and the child is gone.",
	"diff-sandboxes":  "Files that were added, modified, deleted or renamed on the way from the one to the other, on request with unified diffs, processes, and variables of interpreters. Both must be of one tree or of one image.",
	"merge-sandboxes": "A three-way merge against the state at which each side and the sandbox parted. What only one side changed is taken; what both changed is merged line by line, or is a conflict, about which `strategy` decides. Conflicts are a result and no error." + needsRunning,
	"get-tree":        "Which sandbox and snapshot came from which. What is destroyed is listed for as long as something that came from it is there.",

	"create-snapshot":  "Freezes the sandbox for milliseconds and writes its state to disk, or keeps it in memory with `memory`. The sandbox goes on meanwhile." + needsRunning,
	"rollback-sandbox": "The sandbox goes on with the state that the snapshot or the step has, under its id and name. Exactly one of `snapshot` and `step` must be given.",
	"list-snapshots":   "Snapshots that the caller sees, the oldest first, one page at a time. Filters are combined by and.",
	"get-snapshot":     "One snapshot, with its state and its size.",
	"delete-snapshot":  "A snapshot of which others keep only the difference stays unless `cascade` or `flatten` says what becomes of them.",
	"verify-snapshot":  "Reads all of the snapshot from disk. The state of a snapshot that does not match its digests becomes failed.",
	"restore-snapshot": "Makes sandboxes that go on where the snapshot was taken. One that fails is an entry with an error; the request fails if there is none at all.",

	"get-timeline":   "One step for each command and cell that ran in the foreground, the first one first.",
	"bisect-sandbox": "Runs the command in sandboxes that are restored from some of the steps, by bisection, and destroys them again. The sandbox itself is not touched.",

	"create-image": "Builds an image of a distribution's packages, imports an archive or directory of the daemon's host, or pulls it from a registry. Exactly one of `build`, `path` and `ref` must be given." + asEvents,
	"list-images":  "Images that the caller sees, the oldest first, one page at a time.",
	"get-image":    "One image, by id or name.",
	"remove-image": "By a name, that name is removed, and the image with its last one. An image of which there are sandboxes or snapshots stays.",
	"prune-images": "Only images without a name, of which there are neither sandboxes nor snapshots.",

	"export-sandbox":  "The layer that differs from the image, an OCI image, or all files, as they are at one moment. The sandbox goes on meanwhile.",
	"export-snapshot": "The layer that differs from the image, an OCI image, or all files.",
	"commit-sandbox":  "The image has the files of the sandbox as they are at one moment, without its memory and processes." + asEvents,
	"commit-snapshot": "The image has the files of the snapshot, without its memory and processes." + asEvents,

	"list-events":         "Events of all sandboxes that the caller sees, the oldest that are kept first. With `follow` the stream goes on with what happens. The id of an event is its sequence number, so a client that lost its connection continues with the header Last-Event-ID.",
	"list-sandbox-events": "As list-events, of one sandbox. With `follow` the stream ends when the sandbox is destroyed.",

	"create-token": "The secret is in the answer and nowhere else. A token can give no more than its maker has, and ends with it.",
	"list-tokens":  "Tokens that the caller may look at, the oldest first, one page at a time; never their secrets.",
	"rotate-token": "The new secret is in the answer and nowhere else. The old one is valid for `grace_s` seconds more, and not at all by default.",
	"remove-token": "What is being done with the token ends, and so do the tokens that it made.",

	"list-tenants":  "Tenants that have something, or whose quotas were set.",
	"get-tenant":    "Quotas and consumption of one tenant. A tenant sees itself; an operator sees all.",
	"update-tenant": "Quotas that are absent stay as they are. What a tenant has beyond a new quota is not taken from it.",
	"give-image":    "The tenant sees the image by the name given from then on; the files are not copied.",

	"list-audit":   "Changes, commands, exports and comparisons with their outcome, without what was in the requests. A tenant sees its own lines.",
	"verify-audit": "Computes the digests of all lines anew. With the head of an earlier verification, lines that were cut off since are found too.",
}
