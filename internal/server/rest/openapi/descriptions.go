package openapi

import "github.com/danielgtaylor/huma/v2"

// tags are the groups of operations, in the order of the document.
var tags = []*huma.Tag{
	{Name: "sandboxes", Description: "Isolated systems with files, memory and processes of their own."},
	{Name: "processes", Description: "Commands and background processes in a sandbox, with their input and output."},
	{Name: "contexts", Description: "Stateful interpreters of Python, Node and Bash in a sandbox."},
	{Name: "files", Description: "Files and directories in a sandbox."},
	{Name: "ports", Description: "TCP ports that processes in a sandbox listen on."},
	{Name: "network", Description: "What sandboxes may reach: nothing, unless their documents allow it."},
	{Name: "secrets", Description: "Texts that are put into requests outside of sandboxes, which never have them."},
	{Name: "volumes", Description: "Directories that outlive sandboxes, and that several of them share."},
	{Name: "held", Description: "Requests of sandboxes that wait until somebody decides whether they are sent."},
	{Name: "forks", Description: "Copies of live sandboxes, their differences, and merges of them."},
	{Name: "snapshots", Description: "Frozen states that any number of sandboxes can be restored from."},
	{Name: "timeline", Description: "States that a sandbox with automatic checkpoints can return to."},
	{Name: "explorations", Description: "Attempts that a sandbox is forked into, with their scores, and what became of the best."},
	{Name: "images", Description: "Read-only root file systems that sandboxes are created from."},
	{Name: "exports", Description: "Files of sandboxes and snapshots as archives and images."},
	{Name: "events", Description: "The event log of sandboxes."},
	{Name: "tokens", Description: "Secrets that give callers other than the owner access to the daemon."},
	{Name: "tenants", Description: "Groups of users that see nothing of each other, and their quotas."},
	{Name: "audit", Description: "A log of changes and their callers, whose lines are chained by digests."},
	{Name: "daemon", Description: "The daemon itself: health, metrics and this document."},
}

// Parts of several descriptions.
const (
	needsRunning = " The sandbox must be running. A sandbox that is hibernated, or was paused by its idle timeout, wakes first unless its lifecycle forbids it."
	asEvents     = " With `Accept: text/event-stream` the answer is a stream of events, the last of which is the result or the error."
	pathsAsBytes = " Paths are absolute, and may have any bytes but NUL, percent-encoded."
)

// descriptions are the descriptions of the operations, by id.
var descriptions = map[string]string{
	"get-health":    "Answers 200 for as long as the daemon serves requests. It needs no token.",
	"get-readiness": "Answers 200 while new requests are taken, and 503 once the daemon is about to end. It needs no token.",
	"get-metrics":   "Counters and histograms in the text format of Prometheus, over all tenants.",
	"get-openapi":   "OpenAPI 3.1, generated from the types that the daemon decodes and encodes. It needs no token.",

	"create-sandbox":    "Starts a sandbox from an image, or from a snapshot, whose processes then go on. The answer comes when commands can run in it. Limits that are absent are the daemon's defaults; the effective ones are in the answer.",
	"list-sandboxes":    "Sandboxes that the caller sees, the oldest first, a page at a time. A sandbox must match all filters. Memory and disk are left out: get-sandbox has them.",
	"get-sandbox":       "A sandbox, with its effective limits, its isolation, and the memory and disk that it occupies now.",
	"update-sandbox":    "Changes the given members and leaves the rest. A metadata key with null is removed. At least one of name, metadata and lifecycle must be given.",
	"destroy-sandbox":   "Ends all processes of the sandbox and removes its files. Children and snapshots of it are not touched. A second call is an error of 404.",
	"pause-sandbox":     "All processes stand still and use no processor time; their memory stays.",
	"resume-sandbox":    "The processes go on where they stood still.",
	"hibernate-sandbox": "Writes files, memory and processes to disk and frees the memory of the host. The sandbox keeps its id, and a request that needs it wakes it unless its lifecycle forbids it.",
	"wake-sandbox":      "Loads a hibernated sandbox into memory; its processes go on.",
	"get-trace":         "The tasks of the sandbox and the stacks of its kernel, and the end of the kernel's log. It is for reports about a sandbox in which a command does not start. A kernel that does not answer within 5 s is said to be missing.",
	"get-stats":         "Memory, disk, processor time and number of processes. A sandbox that is hibernated or still being made has no memory and no processes.",

	"exec-command":    "Runs a command to its end. A command that fails is a result and no error: see `exit_code`, `signal` and `ok`. Without a stream, the first 8 MiB of each output are kept. When the client goes away the command is killed with its process group." + asEvents + " With `Accept: application/vnd.ramet.frames` it is a stream of frames, for clients that read much output." + needsRunning,
	"open-exec":       "Runs a command with standard input over a WebSocket. The client's first text message is an ExecRequest; binary messages begin with a byte 0 (standard input; nothing after it is its end), 1 (stdout) or 2 (stderr). The server's last message is text: `{\"exit\": ExecResult}` or `{\"error\": Problem}`." + needsRunning,
	"list-processes":  "All processes that run in the sandbox; with `all` also those that were started through the interface and have ended.",
	"start-process":   "Starts a process that needs no client: it goes on when the client has gone away, and the end of its output is kept. Read that with read-output, follow it with attach-process, and wait for its end with wait-process." + needsRunning,
	"get-process":     "A process, running or kept.",
	"remove-process":  "Only for processes that were started through the interface. A running process is killed with its process group.",
	"wait-process":    "Blocks until the process has ended, and answers with its exit. Only for processes that were started through the interface.",
	"signal-process":  "Sends a signal to any process in the sandbox, also to those that were not started through the interface.",
	"resize-process":  "The process gets SIGWINCH. It must have been started with a terminal.",
	"write-process":   "The body goes to standard input, which is closed afterwards with `end`. The call blocks while the process does not read. The process must have been started with `stdin` or a terminal.",
	"read-output":     "Output of a process that was started through the interface, from any sequence number that is still kept. The id of an event is the sequence number to go on from, so a client that lost its connection continues with the header Last-Event-ID.",
	"read-logs":       "Output of all processes that were started through the interface, in the order in which it was written.",
	"attach-process":  "Follows and feeds a process over a WebSocket; when the connection ends, the process goes on. From the client: binary messages that begin with a byte 0 (input; nothing after it is its end), and text, Control. From the server: binary messages of output, which begin with the stream (a byte 1 or 2), the sequence number of the first byte and the time in nanoseconds since 1970 (8 bytes each, big-endian), and text, AttachMessage; the last message has a position or an error.",
	"create-context":  "Starts an interpreter that keeps its variables from one cell to the next, and in forks of the sandbox. The interpreter must be in the image." + needsRunning,
	"list-contexts":   "Interpreters of the sandbox, with their state and the number of cells that wait for their turn.",
	"delete-context":  "Kills the interpreter and forgets the context.",
	"restart-context": "Variables are lost; a running cell is killed, and the new interpreter runs the waiting cells.",
	"run-code":        "Runs a cell in a context, after the cells that came before. Without a context, the default context of the language runs it, which is created when it is first needed. A cell that fails is a result and no error: see `error`." + asEvents + needsRunning,

	"interrupt-context": "The cell is interrupted as by Ctrl-C. It may ignore that and go on: a restart of the context ends it.",

	"stat-file":      "Type, size, mode, owner and times of a file, and of a regular file its ETag." + pathsAsBytes,
	"make-directory": "It is an error of 409 if the path exists, unless `parents` is given and the path is a directory." + pathsAsBytes,
	"move-file":      "A file at the new path is replaced, unless `keep` is given." + pathsAsBytes,
	"change-mode":    "Sets the mode, with `recursive` also of all files below a directory." + pathsAsBytes,
	"remove-file":    "A directory must be empty unless `recursive` is given. With If-Match only the version that the client knows is removed." + pathsAsBytes,
	"list-files":     "Entries of a directory in the order of their names, a page at a time; the entries below a directory follow it." + pathsAsBytes,
	"search-files":   "Lines that contain a text or match a regular expression, or files whose names match a pattern. At least one of `name` and `content` must be given." + pathsAsBytes,
	"watch-files":    "The first event says that the watch has begun. Changes are collected for `debounce_ms` and reported in one event." + pathsAsBytes,
	"read-file":      "The contents as they are. Ranges and If-None-Match work as in RFC 9110; several ranges are answered as multipart/byteranges." + pathsAsBytes,
	"head-file":      "The headers of read-file, without the contents." + pathsAsBytes,
	"write-file":     "The body is the contents, of any length. If-Match and If-None-Match prevent overwriting the changes of another client." + pathsAsBytes,
	"read-archive":   "A tar of the file or directory. A tar that is cut off ends without the end of its HTTP message." + pathsAsBytes,
	"write-archive":  "The body is a tar, of any length. Entries that lead out of the directory are refused." + pathsAsBytes,

	"list-ports":           "Ports on which processes in the sandbox listen, TCP and UDP.",
	"reach-port":           "Waits until a process listens on the port, and answers with that process. With `Connection: Upgrade` and `Upgrade: tcp` the connection becomes a connection to the port: after `101 Switching Protocols` all bytes are passed on in both directions, and each direction ends separately.",
	"proxy-port":           "Passes a request of a program on to a web server in the sandbox. All methods, WebSockets and streams are passed on, as is the path behind the port with its query; `X-Forwarded-Prefix` has the path before it. Pages are not shown to browsers here: they have hosts of their own, see `open-port-session`. Requests whose Host is PORT-SANDBOX.DOMAIN are passed on too, with the whole path: for that, the `_` of an id is written `-`, and DOMAIN is `localhost` unless the daemon was started with another.",
	"list-published-ports": "The ports of the daemon's host that lead to the sandbox. If the daemon could not listen on one when it started, `error` says why, and it tries again every few seconds.",
	"publish-port":         "Has the daemon listen on a port of its host and join each connection with one to the sandbox, which is woken if it wakes by itself. The port is stored with the sandbox, comes back with the next daemon, and ends with the sandbox; children of a fork do not inherit it. A port that is in use is a conflict. A sandbox has up to 32 published ports, and 256 connections at a time: further ones wait. With `token`, the port speaks HTTP only: requests need `Authorization: Bearer TOKEN`, `X-Ramet-Token: TOKEN` or `?token=TOKEN`, and others are answered with 401. Addresses other than loopback, and ports below 1024, are for the owner of the daemon.",
	"unpublish-port":       "Ends the ports of the sandbox that are published on this port of the host, at any address, with their connections.",
	"open-port-session":    "Answers with a URL that a browser can open once, at a host of this port alone. There it gets a cookie for this port only. The cookie is valid for at most 12 hours, and no longer than the caller's token is valid and the daemon runs.",

	"create-volume": "Volumes of a tenant may hold as much together as its quota of disk.",
	"list-volumes":  "The volumes of the tenant, in the order of their names.",
	"get-volume":    "A volume, by id or name, with the sandboxes that have it.",
	"remove-volume": "A volume that a sandbox has is not removed.",

	"get-network":           "The document that says what the sandbox may reach, with the profiles that it names as they were when it was set, and the documents that bound it. A sandbox without a network has a document that allows nothing.",
	"set-network":           "The body replaces the whole document. What it does not allow any more is cut before the answer. A document that cannot be enforced is refused, and then nothing has changed. Tokens that are bound to sandboxes cannot allow more than the document does that is replaced.",
	"test-network":          "Judges a connection as if a process in the sandbox asked for it now, without making it. The rule that decides is in the answer, and of a denial the rule that would allow it.",
	"read-network-log":      "Decisions about connections, name look-ups and pings of the sandbox, the oldest first. The daemon's gateway keeps the last 1024 of a sandbox, and fewer if there are many sandboxes. With `follow` the stream goes on with new ones, and ends with the sandbox.",
	"list-network-profiles": "Documents that have a name: those that are built in, those that are derived from what the host is set up with, and files of the daemon's configuration. The first answer may take seconds, because profiles are derived for it.",

	"list-secrets":  "The secrets of the tenant, in the order of their names. Nothing ever answers with a value.",
	"set-secret":    "The body replaces value and binding. A secret is put only into requests that its binding names, of sandboxes whose network has a rule with its name. Requests that begin after the answer have the new value. The value is encrypted on disk.",
	"remove-secret": "Names whose rules need the secret answer 403 to sandboxes from now on.",
	"list-held":     "Requests that wait, and those that were sent, dropped or are unknown, in the order in which they came. Bodies are told by size and digest.",
	"release-held":  "Sends one request, or all that wait in the order in which they came, and answers when the servers have. The guest that waits gets the server's answer. A request whose state is unknown may have been sent, and is sent again only if `again` asks for that.",
	"drop-held":     "One request, or all that wait. A guest that waits is answered 403.",

	"fork-sandbox":    "Makes children that have all of the running source: files, memory, processes and open files. The source stands still for milliseconds and shares its memory with the children, copy-on-write. A child that fails is an entry with an error; the request fails if no child can be made. If the client or the daemon goes away meanwhile, no unfinished children are left." + needsRunning,
	"promote-sandbox": "The parent goes on with the state of this child, under its own id and name, and the child is gone.",
	"diff-sandboxes":  "Files that were added, modified, deleted or renamed between the two, on request with unified diffs, processes, and variables of interpreters. Both must be of the same tree or the same image.",
	"merge-sandboxes": "A three-way merge against the fork point of each side and the sandbox. A change on one side only is taken. Changes on both sides are merged line by line, or are a conflict, which `strategy` decides. Conflicts are a result and no error." + needsRunning,
	"get-tree":        "Sandboxes and snapshots with their children. A destroyed sandbox is listed for as long as it has descendants.",

	"create-snapshot":    "Freezes the sandbox for milliseconds and writes its state to disk, or keeps it in memory with `memory`. The sandbox goes on meanwhile." + needsRunning,
	"rollback-sandbox":   "The sandbox goes on with the state of the snapshot or step, under its own id and name. Exactly one of `snapshot` and `step` must be given.",
	"list-snapshots":     "Snapshots that the caller sees, the oldest first, a page at a time. A snapshot must match all filters.",
	"get-snapshot":       "A snapshot, with its state and its size.",
	"delete-snapshot":    "A snapshot that other snapshots depend on is only deleted with `cascade`, which deletes them too, or `flatten`, which makes them independent.",
	"verify-snapshot":    "Reads all of the snapshot from disk. The state of a snapshot that does not match its digests becomes failed.",
	"pack-snapshot":      "The tar of an OCI image layout with all that another machine needs to restore the snapshot: state, memory, files and image. The format is specified in docs/snapshot-format.md. Values of secrets are not in it; but memory has whatever programs of the sandbox have read.",
	"list-pack-contents": "What pack-snapshot would send, by part, with the names of variables and secrets, and what it leaves out.",
	"get-signing-key":    "The public key by which packed and pushed snapshots of the tenant are signed, if that is asked for. It is made when it is first needed.",
	"push-snapshot":      "Sends the snapshot as an OCI artifact of type application/vnd.ramet.snapshot.v1. Blobs that the repository has are not sent. For the default tenant the daemon uses the credentials of docker's and podman's configuration of its owner, for other tenants none." + asEvents,
	"pull-snapshot":      "Fetches the parts that no snapshot of the tenant has. The rest is as of unpack-snapshot." + asEvents,
	"unpack-snapshot":    "The body is an archive that pack-snapshot has answered with, of any length. It is refused before its pages are read if this machine cannot restore it. The snapshot begins a tree of its own. Parts that another snapshot of the tenant has are shared with that. A failed request leaves nothing behind.",
	"restore-snapshot":   "Makes sandboxes that go on where the snapshot was taken. A sandbox that fails is an entry with an error; the request fails if no sandbox can be made.",

	"get-timeline":   "A step for each command and cell that ran in the foreground, the first step first.",
	"bisect-sandbox": "Runs the command in sandboxes that are restored from some of the steps, by bisection, and destroys them again. The sandbox itself is not changed.",

	"explore-sandbox":         "Forks the sandbox into attempts at one moment, runs a command or code in each, scores them and stops losers early. The best one is promoted, merged or kept, and the others are destroyed. The exploration belongs to the daemon: it goes on when the client goes away. If a quota or the memory of the host does not allow the attempts, the request fails, unless `limits.min_width` allows fewer." + needsRunning,
	"list-explorations":       "Explorations that the caller sees, the oldest first, a page at a time, without outputs and comparisons. Of those that have ended, the last 100 of a tenant are kept.",
	"get-exploration":         "The exploration with the output, the score and the comparison of each attempt, also while it runs.",
	"cancel-exploration":      "The attempts are stopped and destroyed, and the sandbox stays as it is. The answer comes when they are gone. An exploration that has ended, or is finishing, is not changed.",
	"remove-exploration":      "An exploration that has not ended is canceled before. Attempts that were kept as sandboxes stay.",
	"list-exploration-events": "Changes of the exploration, its rounds and its attempts, the oldest first. With `follow` the stream goes on until the exploration has ended. The id of an event is its number, so a client that lost its connection continues with the header Last-Event-ID. After a restart of the daemon, a first event with `restarted` stands for those of the earlier daemon.",

	"create-image": "Builds an image of a distribution's packages, imports an archive or directory of the daemon's host, or pulls it from a registry. Exactly one of `build`, `path` and `ref` must be given." + asEvents,
	"list-images":  "Images that the caller sees, the oldest first, a page at a time.",
	"get-image":    "An image, by id or name.",
	"remove-image": "With a name, that name is removed, and the image with its last name. An image that sandboxes or snapshots use is not removed.",
	"prune-images": "Removes only images without a name that neither sandboxes nor snapshots use.",

	"export-sandbox":  "The layer that differs from the image, an OCI image, or all files, as they are at one moment. The sandbox goes on meanwhile.",
	"export-snapshot": "The layer that differs from the image, an OCI image, or all files.",
	"commit-sandbox":  "The image has the files of the sandbox as they are at one moment, without its memory and processes." + asEvents,
	"commit-snapshot": "The image has the files of the snapshot, without its memory and processes." + asEvents,

	"list-events":         "Events of all sandboxes that the caller sees, the oldest kept event first. With `follow` the stream goes on with new events. The id of an event is its sequence number, so a client that lost its connection continues with the header Last-Event-ID.",
	"list-sandbox-events": "As list-events, of a single sandbox. With `follow` the stream ends when the sandbox is destroyed.",

	"create-token": "The secret is in the answer and nowhere else. A token cannot have more rights than the caller that creates it, and ends with the token of that caller.",
	"list-tokens":  "Tokens that the caller may see, the oldest first, a page at a time, without their secrets.",
	"rotate-token": "The new secret is in the answer and nowhere else. The old secret stays valid for `grace_s` seconds, by default not at all.",
	"remove-token": "Requests with the token end, and so do the tokens that were created with it.",

	"list-tenants":  "Tenants that have sandboxes, snapshots or images, or whose quotas were set.",
	"get-tenant":    "Quotas and consumption of a tenant. A tenant sees itself; an operator sees all.",
	"update-tenant": "Quotas that are absent stay as they are. A tenant keeps the things that exceed a new quota.",
	"give-image":    "The tenant sees the image by the name given from then on; the files are not copied.",

	"list-audit":   "Changes, commands, exports and comparisons with their results, without the contents of the requests. A tenant sees its own lines.",
	"verify-audit": "Computes the digests of all lines anew. With the head of an earlier verification, it also finds that lines were cut off since then.",
}
