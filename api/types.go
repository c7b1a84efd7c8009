package api

import (
	"encoding/json"
	"time"
)

// DefaultTenant is the tenant that the owner of the daemon works in. Sandboxes,
// snapshots and trees of it have an empty Tenant.
const DefaultTenant = "default"

// Limits bound what one sandbox may use. Zero means the node's default; the
// effective values are reported back.
type Limits struct {
	CPUs      float64 `json:"cpus" doc:"CPU cores, from 0.01 to those that the machine has" required:"false"`
	MemoryMiB int64   `json:"memory_mib" doc:"guest memory in MiB, files in memory included, from 16 to four times the memory of the machine" required:"false"`
	DiskMiB   int64   `json:"disk_mib" doc:"bytes that may be written to the root file system, in MiB, up to four times the file system of the host that files are on" minimum:"0" required:"false"`
	Pids      int64   `json:"pids" doc:"processes and threads" minimum:"0" required:"false"`
	OpenFiles int64   `json:"open_files" doc:"descriptors that each process may have, and none can raise" minimum:"0" required:"false"`
}

// Layer is the state of one isolation layer of a sandbox.
type Layer string

// The values of an isolation layer. A layer that was required and is missing
// is an error, so there is no value for it.
const (
	LayerOn  Layer = "on"
	LayerOff Layer = "off"
)

// Isolation says which layers confine a sandbox.
type Isolation struct {
	Sentry     Layer  `json:"sentry" doc:"guest system calls are served by a user-space kernel"`
	Systrap    Layer  `json:"systrap" doc:"guest code runs in processes that can make no host system calls"`
	Seccomp    Layer  `json:"seccomp" doc:"the user-space kernel's own system calls are filtered"`
	NoNewPrivs Layer  `json:"no_new_privs" doc:"no process can gain privileges of the host"`
	Caps       Layer  `json:"capabilities_dropped" doc:"the user-space kernel has no capabilities"`
	UserNS     Layer  `json:"user_namespace" doc:"the user-space kernel is not the host's root, and has no other of the host's users in its namespace"`
	OwnUser    Layer  `json:"own_user" doc:"the user-space kernel is a user of the host that nothing else is, other sandboxes included; only a daemon that is root's can have that"`
	Namespaces Layer  `json:"namespaces" doc:"own mount, pid, ipc and uts namespaces, and an empty network namespace that it shares with the daemon's other sandboxes"`
	EmptyRoot  Layer  `json:"empty_root" doc:"an empty, read-only root directory"`
	Rlimits    Layer  `json:"rlimits" doc:"the resources of the user-space kernel are bounded"`
	Cgroup     Layer  `json:"cgroup" doc:"memory and processor time are bounded by a control group"`
	CgroupKind string `json:"cgroup_kind,omitempty" enum:"v1,v2" doc:"absent without a control group"`
}

// Memory is what a sandbox occupies on the host.
type Memory struct {
	PrivateMiB float64 `json:"private_mib" doc:"pages that only this sandbox has: guest memory and its kernel's"`
	SharedMiB  float64 `json:"shared_mib" doc:"frozen pages shared with relatives"`
}

// Disk is what a sandbox's files take besides those of its image.
type Disk struct {
	UsedMiB    float64 `json:"used_mib" doc:"all that differs from the image, whoever wrote it: what the limit bounds, and what df shows in the sandbox"`
	LimitMiB   int64   `json:"limit_mib,omitempty" doc:"the limit; absent without one"`
	PrivateMiB float64 `json:"private_mib" doc:"what the sandbox's own file takes of the host's disk: the pages it wrote, those that only its children or snapshots still have too, but none of its ancestors'; of a hibernated one what is kept of it on disk, memory included"`
}

// Identity is what makes a fork different from its siblings.
type Identity struct {
	SandboxID string       `json:"sandbox_id" doc:"id of the sandbox"`
	ForkIndex int          `json:"fork_index" doc:"number among the children of one fork, from 0"`
	Hostname  string       `json:"hostname" doc:"host name"`
	MachineID string       `json:"machine_id" doc:"contents of /etc/machine-id"`
	Hooks     []HookResult `json:"hooks,omitempty" doc:"outcome of each hook in /etc/ramet/fork.d"`
	Reseeded  []Reseed     `json:"reseeded,omitempty" doc:"the random generators of each inherited context, and of processes those that have no new seed"`
	Unwritten []string     `json:"unwritten,omitempty" doc:"files in it that should say who it is and cannot be written, with the reason"`
}

// HookResult is the outcome of one fork hook.
type HookResult struct {
	Name       string  `json:"name" doc:"file name of the hook"`
	ExitCode   int     `json:"exit_code" doc:"exit code of the hook"`
	TimedOut   bool    `json:"timed_out,omitempty" doc:"it was killed after 10 s"`
	Output     string  `json:"output,omitempty" doc:"stdout and stderr, at most 4 KiB"`
	DurationMS float64 `json:"duration_ms" doc:"how long it ran"`
}

// Sandbox is a sandbox as users see it.
type Sandbox struct {
	ID        string            `json:"id" doc:"id of the sandbox"`
	Tenant    string            `json:"tenant,omitempty" doc:"whose it is; absent for the default tenant"`
	Name      string            `json:"name" doc:"or empty"`
	State     State             `json:"state" doc:"where it is in its life"`
	Reason    string            `json:"reason,omitempty" doc:"why the sandbox failed"`
	Image     string            `json:"image" doc:"image id"`
	ImageName string            `json:"image_name,omitempty" doc:"name of the image when the sandbox was made"`
	Parent    string            `json:"parent" doc:"sandbox that this one was forked from, or that the snapshot it was restored from is of; empty if it was created"`
	Snapshot  string            `json:"snapshot,omitempty" doc:"snapshot that this one was restored from"`
	Depth     int               `json:"depth" doc:"forks and restores between this sandbox and a created one"`
	CreatedAt time.Time         `json:"created_at" doc:"when it was made"`
	Limits    Limits            `json:"limits" doc:"effective limits"`
	Env       map[string]string `json:"env,omitempty" doc:"environment of its commands"`
	Cwd       string            `json:"working_dir,omitempty" doc:"where commands start that name no directory; the image's WORKDIR"`
	User      string            `json:"user,omitempty" doc:"whom commands run as that name no user; the image's USER"`
	Metadata  map[string]string `json:"metadata,omitempty" doc:"labels for programs: keys and values of text"`
	Lifecycle *Lifecycle        `json:"lifecycle,omitempty" doc:"when it ends or rests by itself; absent if that was never asked for"`
	ActiveAt  *time.Time        `json:"active_at,omitempty" doc:"when it was used last, if it has an idle timeout"`
	// AutoCheckpoint is nil if only users take snapshots of it.
	AutoCheckpoint *AutoCheckpoint `json:"auto_checkpoint,omitempty" doc:"its state is kept after every command and cell"`
	// SelfControl is nil if processes of the sandbox may not control it.
	SelfControl *SelfControl `json:"self_control,omitempty" doc:"what its processes may do to it; absent if nothing"`
	Identity    Identity     `json:"identity" doc:"what makes it different from its relatives"`
	Isolation   Isolation    `json:"isolation" doc:"layers that confine it"`
	// Memory is left out of lists: it takes a look at each process.
	Memory *Memory `json:"memory,omitempty" doc:"what it occupies in memory; absent in lists"`
	// Disk is left out with it.
	Disk *Disk `json:"disk,omitempty" doc:"what its files take; absent in lists"`
}

// SelfControl is what a sandbox may do to itself. Forks and snapshots are those of
// all that descend from the sandbox that was given the right, together.
type SelfControl struct {
	Forks     int `json:"forks" minimum:"1" maximum:"1000" doc:"sandboxes that may be made in all"`
	Depth     int `json:"depth" minimum:"0" maximum:"32" doc:"generations below this sandbox; from 1 in a request"`
	Snapshots int `json:"snapshots,omitempty" minimum:"0" maximum:"100" doc:"snapshots that may be made in all"`
}

// The most that a sandbox may be allowed to make of itself.
const (
	MaxSelfForks     = 1000
	MaxSelfDepth     = 32
	MaxSelfSnapshots = 100
)

// Valid returns a CodeInvalid error unless c, which may be nil, can be asked for.
func (c *SelfControl) Valid() error {
	switch {
	case c == nil:
		return nil
	case c.Forks < 1 || c.Forks > MaxSelfForks:
		return Invalid("self_control.forks", "%d is not from 1 to %d", c.Forks, MaxSelfForks)
	case c.Depth < 1 || c.Depth > MaxSelfDepth:
		return Invalid("self_control.depth", "%d is not from 1 to %d", c.Depth, MaxSelfDepth)
	case c.Snapshots < 0 || c.Snapshots > MaxSelfSnapshots:
		return Invalid("self_control.snapshots", "%d is not from 0 to %d", c.Snapshots, MaxSelfSnapshots)
	}
	return nil
}

// CreateRequest asks for a new sandbox.
type CreateRequest struct {
	Image          string            `json:"image" doc:"image id or name, or snapshot id or name; an image goes first"`
	Name           string            `json:"name,omitempty" doc:"name to give the sandbox, unique among those of the tenant" minLength:"1"`
	Limits         Limits            `json:"limits,omitempty" doc:"what is absent is the default of the daemon"`
	Env            map[string]string `json:"env,omitempty" doc:"environment of its commands"`
	Metadata       map[string]string `json:"metadata,omitempty" doc:"labels for programs: keys and values of text"`
	Lifecycle      *LifecycleRequest `json:"lifecycle,omitempty" doc:"when it ends or rests by itself"`
	AutoCheckpoint *AutoCheckpoint   `json:"auto_checkpoint,omitempty" doc:"keep its state after every command and cell in the foreground"`
	SelfControl    *SelfControl      `json:"self_control,omitempty" doc:"let processes in the sandbox fork, snapshot, roll back and tag it, by the command ramet and the socket /run/ramet.sock"`
	// Require lists isolation layers without which the sandbox must not start
	// (the JSON names of Isolation's fields).
	Require []string `json:"require,omitempty" enum:"sentry,systrap,seccomp,no_new_privs,capabilities_dropped,user_namespace,own_user,namespaces,empty_root,rlimits,cgroup" doc:"isolation layers that must be on"`
}

// ListFilter selects sandboxes. Empty fields match all.
type ListFilter struct {
	State    State
	Image    string
	Name     string
	Metadata map[string]string
	// Parent, an id or name, is what they were forked or restored from, and Ancestor
	// what they descend from over any number of generations. Both may be a sandbox or
	// the id of a snapshot, and the id of one that is gone.
	Parent, Ancestor string
}

// ExecRequest asks for one command. Exactly one of Argv and Shell is set.
type ExecRequest struct {
	Argv      []string          `json:"argv,omitempty" doc:"program and arguments, without a shell"`
	Shell     string            `json:"shell,omitempty" doc:"run by /bin/sh -c"`
	Env       map[string]string `json:"env,omitempty" doc:"added to the environment of the sandbox"`
	Cwd       string            `json:"cwd,omitempty" doc:"absolute path of the directory that it starts in; the default of the sandbox if absent"`
	User      string            `json:"user,omitempty" doc:"name or uid, optionally :group"`
	Stdin     string            `json:"stdin,omitempty" doc:"text given on standard input"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" minimum:"0" doc:"0 is no limit; at the limit the command and its process group are killed"`
	// Key lets the command go on without its daemon. From is for who asks the next one.
	Key  string `json:"key,omitempty" pattern:"^[A-Za-z0-9]{16,64}$" doc:"an unguessable text of the caller's: if the daemon ends, the command, which has no standard input, goes on for 30 s, in which the caller can come back with the same request and from; only for answers in frames"`
	From *int64 `json:"from,omitempty" minimum:"0" doc:"come back to the command with this key, and to its output at this byte of both streams together; nothing is started"`
}

// ExecResult is the outcome of a command. A command that fails is a result, not
// an error.
type ExecResult struct {
	Stdout     string  `json:"stdout" doc:"standard output"`
	Stderr     string  `json:"stderr" doc:"standard error"`
	ExitCode   int     `json:"exit_code" doc:"128+signal if a signal ended it"`
	OK         bool    `json:"ok" doc:"the exit code is 0"`
	Signal     string  `json:"signal" doc:"the signal that ended it, or empty"`
	TimedOut   bool    `json:"timed_out,omitempty" doc:"it was killed at its deadline"`
	Idle       bool    `json:"idle,omitempty" doc:"it was the idle timeout"`
	DurationMS float64 `json:"duration_ms" doc:"how long it ran"`
	Truncated  bool    `json:"truncated,omitempty" doc:"a stream, or what a cell showed or resulted in, was longer than is kept"`
}

// ForkRequest asks for children of a running sandbox.
type ForkRequest struct {
	Count     int               `json:"count,omitempty" minimum:"1" maximum:"1000" doc:"children; one for each name if absent, or 1"`
	Names     []string          `json:"names,omitempty" doc:"one for each child"`
	Metadata  map[string]string `json:"metadata,omitempty" doc:"labels of the children, instead of those of the parent"`
	Env       map[string]string `json:"env,omitempty" doc:"added to the environment of commands in the children"`
	Lifecycle *LifecycleRequest `json:"lifecycle,omitempty" doc:"when the children end or rest by themselves; what is absent is the parent's, counted from now"`
	// TimeoutMS bounds each child; a child that is late is reported as its
	// error and does not harm the others.
	TimeoutMS int64 `json:"timeout_ms,omitempty" minimum:"0" maximum:"600000" doc:"deadline for each child, 30000 if absent"`
	// Require is FreshRandomness or nothing.
	Require []string `json:"require,omitempty" enum:"fresh-randomness" doc:"fresh-randomness: make no child with a random generator that is known to repeat and has no new seed"`
	// Wait is nil or true unless the caller goes on before the children run.
	Wait *bool `json:"wait,omitempty" doc:"false: return as soon as the snapshot is taken; the children have their ids and are creating until they run or have failed, and requests to one wait for that"`
}

// Waits reports whether the caller waits for the children.
func (r *ForkRequest) Waits() bool { return r.Wait == nil || *r.Wait }

// Children is how many a request with a count and names asks for: if no count is
// given, one for each name, or one.
func Children(count int, names []string) int {
	if count == 0 {
		return max(1, len(names))
	}
	return count
}

// ForkResult is the outcome of a fork or restore, with one entry a child.
type ForkResult struct {
	PauseMS    float64 `json:"pause_ms" doc:"how long the source stood still"`
	SnapshotMS float64 `json:"snapshot_ms" doc:"from the call to the finished snapshot"`
	ReturnMS   float64 `json:"return_ms" doc:"from the call to its return"`
	Children   []Child `json:"children" doc:"one entry for each child, in the order of their indexes"`
}

// Child is one child of a fork: a sandbox or an error.
type Child struct {
	Sandbox  *Sandbox  `json:"sandbox,omitempty" doc:"the child; absent if it failed"`
	ReadyMS  float64   `json:"ready_ms,omitempty" doc:"from the call until the child could run commands"`
	Identity *Identity `json:"identity,omitempty" doc:"what makes the child different from its siblings"`
	Error    *Error    `json:"error,omitempty" doc:"why there is no child"`
	Name     string    `json:"name,omitempty" doc:"what a child with an error was to be called"`
}

// Snapshot is a frozen state that any number of sandboxes can be restored from.
type Snapshot struct {
	ID        string            `json:"id" doc:"id of the snapshot"`
	Tenant    string            `json:"tenant,omitempty" doc:"whose it is; absent for the default tenant"`
	Name      string            `json:"name" doc:"or empty"`
	Label     string            `json:"label,omitempty" doc:"what the sandbox calls it that took it by itself: no name, which it is found by outside"`
	State     SnapshotState     `json:"state" doc:"where it is in its life"`
	Reason    string            `json:"reason,omitempty" doc:"why it failed"`
	Sandbox   string            `json:"sandbox" doc:"sandbox it was taken of"`
	Parent    string            `json:"parent,omitempty" doc:"snapshot that the sandbox came from"`
	Image     string            `json:"image" doc:"image id"`
	Depth     int               `json:"depth" doc:"forks and restores between the sandbox and a created one"`
	CreatedAt time.Time         `json:"created_at" doc:"when it was made"`
	OnDisk    bool              `json:"on_disk" doc:"survives the daemon and the host"`
	SizeBytes int64             `json:"size_bytes" doc:"bytes on disk"`
	PauseMS   float64           `json:"pause_ms" doc:"how long the sandbox stood still"`
	Engine    string            `json:"engine" doc:"engine version that can restore it"`
	DependsOn []string          `json:"depends_on,omitempty" doc:"snapshots that have part of it: only what differs from them is stored"`
	ExpiresAt *time.Time        `json:"expires_at,omitempty" doc:"when it is deleted, by a rule of its tree"`
	Metadata  map[string]string `json:"metadata,omitempty" doc:"labels for programs: keys and values of text"`
}

// SnapshotRequest asks for a snapshot of a running sandbox.
type SnapshotRequest struct {
	Name     string            `json:"name,omitempty" doc:"name to give the snapshot, unique among those of the tenant" minLength:"1"`
	Metadata map[string]string `json:"metadata,omitempty" doc:"labels for programs: keys and values of text"`
	// Memory keeps the snapshot in memory only: faster, gone when the daemon ends.
	Memory bool `json:"memory,omitempty" doc:"keep in memory, do not write to disk; gone when the daemon ends"`
	// Wait is nil or true unless the caller goes on before the snapshot is on disk.
	Wait *bool `json:"wait,omitempty" doc:"false: return as soon as the sandbox runs again; the snapshot is uploading until it is on disk, and can be restored meanwhile"`
}

// SnapshotDeletion says what becomes of snapshots that were written as what differs
// from the one to delete. If neither is set and there are any, it stays.
type SnapshotDeletion struct {
	Cascade bool // they are deleted, too
	Flatten bool // they are written anew, without it
}

// RestoreRequest asks for new sandboxes from a snapshot.
type RestoreRequest struct {
	Count     int               `json:"count,omitempty" minimum:"1" maximum:"1000" doc:"new sandboxes; one for each name if absent, or 1"`
	Names     []string          `json:"names,omitempty" doc:"one for each sandbox"`
	Metadata  map[string]string `json:"metadata,omitempty" doc:"labels of the sandboxes, instead of those of the snapshot"`
	Env       map[string]string `json:"env,omitempty" doc:"added to the environment of commands in the sandboxes"`
	Lifecycle *LifecycleRequest `json:"lifecycle,omitempty" doc:"when they end or rest by themselves; what is absent is that of the sandbox that was frozen, counted from now"`
	// Require is FreshRandomness or nothing.
	Require []string `json:"require,omitempty" enum:"fresh-randomness" doc:"fresh-randomness: make no sandbox with a random generator that is known to repeat and has no new seed"`
}

// FreshRandomness is what a fork and a restore can be required to have.
const FreshRandomness = "fresh-randomness"

// RequiresFresh reports whether require names FreshRandomness, or returns an error if it
// names anything else.
func RequiresFresh(require []string) (bool, error) {
	for _, name := range require {
		if name != FreshRandomness {
			return false, Invalid("require", "%q cannot be required of a copy: there is %s", name, FreshRandomness)
		}
	}
	return len(require) > 0, nil
}

// ChangeKind says what happened to a path.
type ChangeKind string

// The kinds of change between two file systems.
const (
	Added    ChangeKind = "added"
	Modified ChangeKind = "modified"
	Deleted  ChangeKind = "deleted"
	Renamed  ChangeKind = "renamed"
)

// Undecided is a variable that is the same in the part of it that was compared.
const Undecided ChangeKind = "undecided"

// Change is one path that differs between two sandboxes. An old type, mode and
// owner are given where they differ.
type Change struct {
	Path       string     `json:"path" doc:"absolute path, in the second sandbox or, if deleted, in the first"`
	Kind       ChangeKind `json:"kind" doc:"added, modified, deleted or renamed; what was renamed may be modified too, what is below a renamed directory is only listed if it was"`
	Exact      []byte     `json:"path_base64,omitempty" doc:"the bytes of the path, if they are not UTF-8"`
	OldPath    string     `json:"old_path,omitempty" doc:"in the first sandbox, if the file or a directory above it was renamed"`
	OldExact   []byte     `json:"old_path_base64,omitempty" doc:"the bytes of the old path, if they are not UTF-8"`
	Type       string     `json:"type" enum:"file,dir,symlink,fifo,socket,device" doc:"file, dir, symlink, fifo, socket or device"`
	OldType    string     `json:"old_type,omitempty" enum:"file,dir,symlink,fifo,socket,device" doc:"in the first one, if it differs"`
	Size       int64      `json:"size" doc:"bytes in the second sandbox, or in the first if deleted"`
	OldSize    int64      `json:"old_size,omitempty" doc:"bytes in the first one, if they differ"`
	Mode       string     `json:"mode" doc:"octal"`
	OldMode    string     `json:"old_mode,omitempty" doc:"in the first one, if it differs"`
	Owner      string     `json:"owner" doc:"numbers of user and group"`
	OldOwner   string     `json:"old_owner,omitempty" doc:"in the first one, if it differs"`
	Content    bool       `json:"content,omitempty" doc:"the contents of a file, the target of a link or the number of a device differ"`
	Xattrs     []string   `json:"xattrs,omitempty" doc:"extended attributes that differ"`
	Insertions int        `json:"insertions,omitempty" doc:"lines that are new, on request"`
	Deletions  int        `json:"deletions,omitempty" doc:"lines that are gone, on request"`
	Hunks      string     `json:"hunks,omitempty" doc:"unified diff of text files, on request"`
	NoHunks    NoHunks    `json:"no_hunks,omitempty" doc:"why a file was not compared line by line although that was asked for: binary, too_large or limit (of all together)"`
}

type changeJSON Change

// MarshalJSON implements json.Marshaler.
func (c Change) MarshalJSON() ([]byte, error) {
	c.Exact, c.OldExact = ExactBytes(c.Path), ExactBytes(c.OldPath)
	return marshal(changeJSON(c))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Change) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*changeJSON)(c)); err != nil {
		return err
	}
	takeExact(&c.Path, &c.Exact)
	takeExact(&c.OldPath, &c.OldExact)
	return nil
}

// NoHunks says why a file was not compared line by line.
type NoHunks string

// The reasons.
const (
	NoHunksBinary   NoHunks = "binary"
	NoHunksTooLarge NoHunks = "too_large"
	NoHunksLimit    NoHunks = "limit"
)

// DiffRequest says what to compare.
type DiffRequest struct {
	Paths []string `json:"paths,omitempty" doc:"only these paths and what is below them; all but /dev, /proc, /sys, /tmp and the files of a sandbox's identity if there are none"`
	Hunks bool     `json:"hunks,omitempty" doc:"with unified diffs of text files"`
	Stat  bool     `json:"stat,omitempty" doc:"with numbers of lines that differ"`
	// Processes and Variables need two running sandboxes.
	Processes bool `json:"processes,omitempty" doc:"with the processes"`
	Variables bool `json:"variables,omitempty" doc:"with the variables of Python and Node contexts"`
}

// Diff is the difference from one sandbox or snapshot to another.
type Diff struct {
	From    string   `json:"from" doc:"id of the first side"`
	To      string   `json:"to" doc:"id of the second side"`
	Base    string   `json:"base" doc:"nearest common ancestor"`
	Changes []Change `json:"changes" doc:"paths that differ"`
	// Processes and Variables are only there on request.
	Processes []ProcessChange  `json:"processes,omitzero" doc:"processes that differ, on request"`
	Variables []VariableChange `json:"variables,omitzero" doc:"variables of contexts that differ, on request"`
}

// TreeNode is one sandbox or snapshot in the lineage.
type TreeNode struct {
	ID        string      `json:"id" doc:"id of the sandbox or snapshot"`
	Tenant    string      `json:"tenant,omitempty" doc:"whose it is; absent for the default tenant"`
	Name      string      `json:"name,omitempty" doc:"name, if it has one"`
	Label     string      `json:"label,omitempty" doc:"of a snapshot that a sandbox took by itself: what that calls it"`
	Kind      string      `json:"kind" enum:"sandbox,snapshot" doc:"sandbox or snapshot"`
	State     string      `json:"state" enum:"creating,running,paused,hibernated,failed,destroyed,uploading,ready,deleted" doc:"where it is in its life; destroyed for what only descendants are left of"`
	CreatedAt time.Time   `json:"created_at,omitzero" doc:"absent of what is destroyed"`
	Children  []*TreeNode `json:"children,omitempty" doc:"what came from it"`
}

// Stats is what a sandbox uses now. One that is hibernated, or still being made, has
// no memory and no processes.
type Stats struct {
	State      State   `json:"state" doc:"where the sandbox is in its life"`
	Memory     Memory  `json:"memory" doc:"what it occupies in memory"`
	Disk       Disk    `json:"disk" doc:"what its files take"`
	CPUSeconds float64 `json:"cpu_seconds" doc:"processor time in all"`
	Processes  int     `json:"processes" doc:"number of processes"`
}

// Port is a port that a process in a sandbox listens on.
type Port struct {
	Port     int    `json:"port" doc:"number of the port"`
	Protocol string `json:"protocol" enum:"tcp,udp" doc:"tcp or udp"`
	Address  string `json:"address" doc:"in the sandbox; 0.0.0.0 and :: are all"`
	PID      int    `json:"pid,omitempty" doc:"the first process that has it open"`
	Command  string `json:"command,omitempty" doc:"command of that process"`
}

// PortSessionRequest asks for a URL by which a browser reaches a port of a sandbox.
type PortSessionRequest struct {
	Port int    `json:"port" minimum:"1" maximum:"65535" doc:"TCP port in the sandbox"`
	Path string `json:"path,omitempty" maxLength:"4096" doc:"of the page to open, with its query, such as /lab; / if absent"`
}

// PortSession is a URL by which one browser reaches a port of a sandbox.
type PortSession struct {
	URL       string    `json:"url" doc:"to be opened once; whoever opens it is let in"`
	ExpiresAt time.Time `json:"expires_at" doc:"when it cannot be opened any more"`
}

// Image is a read-only root file system.
type Image struct {
	ID    string   `json:"id" doc:"id of the image"`
	Names []string `json:"names" doc:"names by which it is found"`
	// Tenants are only in lists of all tenants' images.
	Tenants   map[string][]string `json:"tenants,omitempty" doc:"the names that other tenants have for it, in a list of all tenants' images"`
	Digest    string              `json:"digest" doc:"sha256 of the EROFS file"`
	SizeBytes int64               `json:"size_bytes" doc:"size of the file"`
	CreatedAt time.Time           `json:"created_at" doc:"when it was made"`
	Source    string              `json:"source,omitempty" doc:"where it came from"`
	Env       []string            `json:"env,omitempty" doc:"environment of commands, as NAME=VALUE"`
	Cmd       []string            `json:"cmd,omitempty" doc:"default arguments"`
	Entry     []string            `json:"entrypoint,omitempty" doc:"default program"`
	Cwd       string              `json:"working_dir,omitempty" doc:"directory in which commands start"`
	User      string              `json:"user,omitempty" doc:"user whom commands run as"`
}

// Pruned is what was removed because nobody needed it.
type Pruned struct {
	Removed    []string `json:"removed" nullable:"false" doc:"ids of images"`
	Packages   int      `json:"packages,omitempty" doc:"cached packages and lists of packages that were removed"`
	FreedBytes int64    `json:"freed_bytes" doc:"bytes of disk that are free again, of images and packages"`
}

// PruneRequest says what is removed besides images that nobody needs.
type PruneRequest struct {
	Cache         bool  `json:"cache,omitempty" doc:"also the packages that builds have fetched and kept; only for operators"`
	CacheUnusedMS int64 `json:"cache_unused_ms,omitempty" minimum:"0" doc:"of those only what no build has used for so long; 0 is all"`
}

// ImageRequest asks for an image. Exactly one of Build, Path and Ref is set.
type ImageRequest struct {
	Name  string      `json:"name" doc:"name to give the image"`
	Build *ImageBuild `json:"build,omitempty" doc:"make it from a distribution's packages"`
	Path  string      `json:"path,omitempty" doc:"absolute path on the daemon's host: directory, tar, docker-save or OCI archive, OCI layout"`
	// Select is for archives and layouts that hold several images.
	Select string `json:"select,omitempty" doc:"which image of those in the archive or layout at path, as name:tag, where there are several"`
	Ref    string `json:"ref,omitempty" doc:"reference in a registry"`
}

// ImageBuild says what an image is built of.
type ImageBuild struct {
	From    string   `json:"from" doc:"debian"`
	Suite   string   `json:"suite,omitempty" doc:"the host's own if absent"`
	Include []string `json:"include,omitempty" doc:"packages"`
}

// ExportFormat is a form in which the files of a sandbox can be had.
type ExportFormat string

// The formats of an export.
const (
	ExportLayer ExportFormat = "layer" // tar of what differs from the image, as a layer on top of it
	ExportOCI   ExportFormat = "oci"   // archive of an OCI image layout: the image and the layer
	ExportTar   ExportFormat = "tar"   // tar of all files
)

// ExportRequest says how the files of a sandbox or snapshot are wanted.
type ExportRequest struct {
	Format ExportFormat
	Gzip   bool // compressed; of an archive, its layers
}

// CommitRequest asks for an image of a sandbox's or snapshot's files.
type CommitRequest struct {
	Name    string `json:"name" doc:"name to give the image"`
	Message string `json:"message,omitempty" maxLength:"1000" doc:"what the image is, for people"`
	Replace bool   `json:"replace,omitempty" doc:"take the name from the image that has it; without it a name that an image has is a conflict"`
}

// Progress is one step of long work.
type Progress struct {
	Phase  string `json:"phase" doc:"what is being done"`
	Done   int64  `json:"done" doc:"how much is done"`
	Total  int64  `json:"total" doc:"how much there is to do; 0 if that is not known"`
	Detail string `json:"detail,omitempty" doc:"what it is done to"`
}
