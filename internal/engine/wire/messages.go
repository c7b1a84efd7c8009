package wire

import (
	"encoding/json"
	"reflect"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
)

// Op names a call.
type Op string

// The calls a sentry serves. A blank sentry accepts Boot and Load, once; all
// others need a sandbox in it.
const (
	OpBoot     Op = "boot"     // + image FD; make a new sandbox
	OpLoad     Op = "load"     // + snapshot FD, image FD, generation FDs; become a child
	OpCommit   Op = "commit"   // outlive the connection that made the sandbox
	OpExec     Op = "exec"     // run a command, see the package comment
	OpReattach Op = "reattach" // come back to a command that an earlier daemon started
	OpFile     Op = "file"     // an operation on files, see File
	OpStart    Op = "start"    // start a process; reply Started
	OpAttach   Op = "attach"   // follow a process, see the package comment
	OpWait     Op = "wait"     // reply Exited when a process has ended
	OpInput    Op = "input"    // write to a process, or end its input
	OpSignal   Op = "signal"   // send a signal to a process
	OpResize   Op = "resize"   // set the size of a process's terminal
	OpForget   Op = "forget"   // end a process and drop its output
	OpPorts    Op = "ports"    // []api.Port
	OpDial     Op = "dial"     // connect to a port, see the package comment
	OpContexts Op = "contexts" // the interpreters
	OpContext  Op = "context"  // make, interrupt, restart or end an interpreter
	OpRun      Op = "run"      // a request to an interpreter, see the package comment
	OpFreeze   Op = "freeze"   // reply + snapshot FD
	OpView     Op = "view"     // keep the files as they are for a reader; Release ends it
	OpRelease  Op = "release"  // drop the pins of a freeze
	OpPatch    Op = "patch"    // + file of changes; make them to the files, all or none
	OpPause    Op = "pause"    // stop all tasks
	OpResume   Op = "resume"   // let them run
	OpIdentify Op = "identify" // become another sandbox: promotion
	OpEnviron  Op = "environ"  // replace the environment of commands
	OpNetwork  Op = "network"  // + channel FD; connect with a gateway, or without it, with none
	OpInfo     Op = "info"     // Info
	OpPS       Op = "ps"       // Processes of a Page
	OpProcess  Op = "process"  // one process
	OpTrace    Op = "trace"    // Trace: what the sentry does
	OpControl  Op = "control"  // serve the sandbox's requests, see the package comment
	OpVolumes  Op = "volumes"  // serve the sandbox's operations on volumes, see the package comment
	OpAdopt    Op = "adopt"    // reply + memory file, generations: for a new daemon
	OpQuit     Op = "quit"     // end the sandbox
)

// Receives reports whether the server of the call goes on receiving, if only to notice that
// the caller went away.
func (o Op) Receives() bool {
	return o == OpExec || o == OpReattach || o == OpControl || o == OpVolumes || o == OpAttach || o == OpWait || o == OpInput || o == OpContext || o == OpRun || o == OpFile || o == OpDial
}

// Call is the body of a TypeCall packet. Exactly the field of its op is set.
type Call struct {
	Op       Op        `json:"op"`
	Boot     *Boot     `json:"boot,omitempty"`
	Load     *Load     `json:"load,omitempty"`
	Exec     *Exec     `json:"exec,omitempty"` // of OpExec and OpStart
	Attach   *Attach   `json:"attach,omitempty"`
	Page     *Page     `json:"page,omitempty"`
	Process  *Process  `json:"process,omitempty"` // of OpProcess, OpWait and OpForget
	Input    *Input    `json:"input,omitempty"`
	Signal   *Signal   `json:"signal,omitempty"`
	Resize   *Resize   `json:"resize,omitempty"`
	File     *File     `json:"file,omitempty"`
	Freeze   *Freeze   `json:"freeze,omitempty"`
	View     *View     `json:"view,omitempty"`
	Release  *Release  `json:"release,omitempty"`
	Patch    *Patch    `json:"patch,omitempty"`
	Identify *Common   `json:"identify,omitempty"`
	Context  *Context  `json:"context,omitempty"`
	Run      *Run      `json:"run,omitempty"`
	Dial     *DialPort `json:"dial,omitempty"`
	Network  *Network  `json:"network,omitempty"`
	Environ  *Environ  `json:"environ,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler. It decodes only the fields that are present: a
// decoder of the whole type would need longer to prepare itself than Load takes, which is
// the call that most sentries get.
func (c *Call) UnmarshalJSON(b []byte) error {
	var bodies map[string]json.RawMessage
	if err := json.Unmarshal(b, &bodies); err != nil {
		return err
	}
	*c = Call{}
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if body, ok := bodies[name]; ok {
			if err := json.Unmarshal(body, v.Field(i).Addr().Interface()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Common is the part of Boot and Load that says which sandbox it will be.
type Common struct {
	ID        string            `json:"id"`
	Hostname  string            `json:"hostname"`
	MachineID string            `json:"machine_id"`
	ForkIndex int               `json:"fork_index"`
	Env       map[string]string `json:"env,omitempty"`
	Limits    api.Limits        `json:"limits"`
}

// Boot asks a blank sentry to start a sandbox from the image whose descriptor
// comes with the call.
type Boot struct {
	Common
	// Control grants self-control. The descriptor of the guest's command comes after that
	// of the image.
	Control bool `json:"control,omitempty"`
	// Network says that the sandbox has a network. The descriptor of its channel to the
	// gateway comes last.
	Network bool `json:"network,omitempty"`
	// Volumes are to be mounted.
	Volumes []VolumeMount `json:"volumes,omitempty"`
}

// VolumeMount is a volume to be mounted.
type VolumeMount struct {
	Volume   string `json:"volume"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Load asks a blank sentry to become a child of a frozen sandbox. Descriptors:
// the snapshot file, the image, then one for each generation, then the channel of
// the network.
type Load struct {
	Common
	Generations []string `json:"generations"`
	// RunHooks says that the hooks in /etc/ramet/fork.d must run before the
	// reply.
	RunHooks bool `json:"run_hooks"`
	// FreshRandomness says that the sandbox must not run with a random generator that is
	// known to repeat and has no new seed.
	FreshRandomness bool `json:"fresh_randomness,omitempty"`
	// Network is as in Boot, whether the frozen sandbox had a network or not.
	Network bool `json:"network,omitempty"`
	// Volumes are to be mounted besides those that the frozen sandbox had.
	Volumes []VolumeMount `json:"volumes,omitempty"`
	// Answer is for the request of the sandbox that it was frozen for.
	Answer *ControlAnswer `json:"answer,omitempty"`
	// Decoded says that the sentry is one of a template, which has the state already: Generations is empty, and
	// the channel is the only descriptor.
	Decoded bool `json:"decoded,omitempty"`
}

// ControlRequest is a line that a process sent on the control socket. The sentry has only
// checked that it is a JSON object.
type ControlRequest struct {
	// ID names the request among those of this sandbox and of the ancestors whose state it
	// has.
	ID      uint64          `json:"id"`
	Request json.RawMessage `json:"request"`
}

// ControlAnswer is the line that answers a ControlRequest.
type ControlAnswer struct {
	ID    uint64          `json:"id"`
	Reply json.RawMessage `json:"reply"`
}

// Stage is a step of a call in the sentry. Stages follow each other.
type Stage struct {
	Name string  `json:"name"`
	MS   float64 `json:"ms"`
}

// Timed is part of replies that say how their time was spent.
type Timed struct {
	Stages []Stage `json:"stages,omitempty"` // the last of them ended with the reply
}

// Spent returns the stages.
func (t *Timed) Spent() []Stage { return t.Stages }

// Loaded is the reply to Boot and Load.
type Loaded struct {
	Hooks    []api.HookResult `json:"hooks,omitempty"`
	Reseeded []api.Reseed     `json:"reseeded,omitempty"`
	// Unwritten are the files with the sandbox's identity that could not be written.
	Unwritten []string `json:"unwritten,omitempty"`
	Timed
}

// Exec asks for a command.
type Exec struct {
	Argv      []string          `json:"argv"`
	Env       map[string]string `json:"env,omitempty"`
	Cwd       string            `json:"cwd,omitempty"`
	User      string            `json:"user,omitempty"`
	Stdin     bool              `json:"stdin"` // else stdin is /dev/null
	TimeoutMS int64             `json:"timeout_ms,omitempty"`
	// IdleTimeoutMS is how long the process may neither write nor be written to.
	IdleTimeoutMS int64 `json:"idle_timeout_ms,omitempty"`
	// Terminal, if not nil, gives the process a controlling terminal of that size.
	Terminal *api.TerminalSize `json:"terminal,omitempty"`
	// Keep is how much output is kept for clients that come later, in bytes.
	Keep int64 `json:"keep,omitempty"`
	// Key names an exec that goes on when its connection is lost, until it is resumed,
	// unless TypeCancel came before. From is the first byte of output that is wanted when
	// it is resumed.
	Key  string `json:"key,omitempty"`
	From int64  `json:"from,omitempty"`
}

// Started is the reply to Start.
type Started struct {
	PID int `json:"pid"`
}

// Page asks for some of the processes, which may be more than fit a packet.
type Page struct {
	After int  `json:"after"` // process id; 0 for the first page
	Ended bool `json:"ended"` // also those that have ended
}

// Processes is the reply to PS.
type Processes struct {
	List []api.Process `json:"list"` // in the order of their ids
	More bool          `json:"more"`
}

// Process names a process.
type Process struct {
	PID int `json:"pid"`
}

// Attach asks for the output of a process, which may have ended.
type Attach struct {
	PID int `json:"pid"`
	// From is the sequence number of the first byte that is wanted, -1 for output
	// that is written from now on.
	From   int64 `json:"from"`
	Follow bool  `json:"follow"` // until the process ends, else only the kept output
	Stdin  bool  `json:"stdin"`  // packets of standard input are for the process
}

// Attached is the reply to Attach, after all output.
type Attached struct {
	Next   int64   `json:"next"`             // sequence number of the next byte
	Exited *Exited `json:"exited,omitempty"` // nil while the process runs
}

// Input writes to a process. It is answered when all is written.
type Input struct {
	PID  int    `json:"pid"`
	Data []byte `json:"data,omitempty"`
	End  bool   `json:"end,omitempty"` // then close standard input
}

// Signal sends a signal.
type Signal struct {
	PID    int  `json:"pid"`
	Number int  `json:"number"`
	Group  bool `json:"group,omitempty"` // to the process's group
	// Foreground sends it to the foreground group of the process's terminal as well.
	Foreground bool `json:"foreground,omitempty"`
}

// Resize sets the size of the terminal of a process.
type Resize struct {
	PID  int              `json:"pid"`
	Size api.TerminalSize `json:"size"`
}

// Exited is the reply to Exec and Wait.
type Exited struct {
	Code       int     `json:"code"`
	Signal     string  `json:"signal,omitempty"`
	TimedOut   bool    `json:"timed_out,omitempty"`
	Idle       bool    `json:"idle,omitempty"` // it was the idle timeout
	DurationMS float64 `json:"duration_ms"`
	Timed
}

// Result returns the outcome as users see it, without output.
func (x *Exited) Result() *api.ExecResult {
	return &api.ExecResult{
		ExitCode: x.Code, OK: x.Code == 0, Signal: x.Signal, TimedOut: x.TimedOut, Idle: x.Idle, DurationMS: x.DurationMS,
	}
}

// DialPort asks for a connection to a TCP port of the sandbox.
type DialPort struct {
	Port uint16 `json:"port"`
	// WaitMS is how long to wait for a listener.
	WaitMS int64 `json:"wait_ms,omitempty"`
}

// Network connects a sandbox with the gateway whose channel comes with the call, in
// place of another one, or takes the network from it. Either resets the connections to
// the outside that it has.
type Network struct {
	Connected bool `json:"connected"`
}

// Environ replaces the environment of commands that begin from now on.
type Environ struct {
	Env map[string]string `json:"env"`
}

// Networked is the reply to Network.
type Networked struct {
	// Unwritten are the files that should say where names are asked for and do not.
	Unwritten []string `json:"unwritten,omitempty"`
}

// Freeze asks for a snapshot. The sandbox runs on when the reply comes.
type Freeze struct {
	// ID names the pins; Release takes it.
	ID string `json:"id"`
	// Self is the name of the sandbox's own memory file in generation lists.
	Self string `json:"self"`
	// SelfFiles is the name of its own file of pages of files, see package cowfs.
	SelfFiles string `json:"self_files"`
	// Rest leaves the sandbox paused, so that the snapshot has everything that happened in
	// it. A paused sandbox may be frozen with it, too.
	Rest bool `json:"rest,omitempty"`
}

// View asks for the files as they are now. The view stays the same until Release,
// while the sandbox runs on.
type View struct {
	ID        string `json:"id"`
	SelfFiles string `json:"self_files"`
}

// Viewed is the reply to View.
type Viewed struct {
	Files       snapfile.Files `json:"files"`
	Generations []string       `json:"generations"`
	Timed
}

// Frozen is the reply to Freeze; the snapshot file comes with it.
type Frozen struct {
	PauseMS float64 `json:"pause_ms"`
	// Generations are the memory files that the snapshot maps, in the order
	// of its table.
	Generations []string `json:"generations"`
	StateBytes  int64    `json:"state_bytes"`
	CopiedBytes int64    `json:"copied_bytes"`
	PinnedBytes int64    `json:"pinned_bytes"`
	// Files says where the files are, as the snapshot does.
	Files snapfile.Files `json:"files"`
	// Seq orders the freezes of one sentry.
	Seq int64 `json:"seq"`
	Timed
}

// Release drops the pins of a freeze. Unknown ids are no error.
type Release struct {
	ID string `json:"id,omitempty"`
	// Keep, if not nil, instead drops all pins but these: a new daemon uses it to drop
	// the pins that the old daemon left. An empty list drops all.
	Keep []string `json:"keep"`
}

// Info describes a sentry.
type Info struct {
	ID          string   `json:"id"`
	State       string   `json:"state"` // blank, running, paused
	OwnBytes    int64    `json:"own_bytes"`
	SharedBytes int64    `json:"shared_bytes"`
	DiskBytes   int64    `json:"disk_bytes"` // of all differences from the image
	SentryBytes int64    `json:"sentry_bytes"`
	Processes   int      `json:"processes"`
	Generations []string `json:"generations"`
}

// Trace is the reply to Trace.
type Trace struct {
	Text string `json:"text"`
}

// Adopted is the reply to Adopt. The descriptors are the sandbox's own memory
// file, its own file of pages of files, and those of Generations.
type Adopted struct {
	ID          string        `json:"id"`
	State       string        `json:"state"`
	Isolation   api.Isolation `json:"isolation"`
	Generations []string      `json:"generations"`
	Pins        []string      `json:"pins"`
}

// Hello is the message of a blank sentry on its lifeline when it is ready.
type Hello struct {
	BuildID   string        `json:"build_id"`
	PID       int           `json:"pid"`
	Isolation api.Isolation `json:"isolation"`
}

// ProbeRoot, in the place of a ZygoteConfig, has a process make its root empty and end. The exit code
// is 0 if it could, and else standard error has the reason.
const ProbeRoot = "probe-root"

// ZygoteConfig is the argument of the zygote, as JSON.
type ZygoteConfig struct {
	BuildID string `json:"build_id"`
	// Namespaces says that the host side made new namespaces for the zygote, and that its
	// children shall have their own.
	Namespaces bool `json:"namespaces"`
	// OwnUsers says that its user namespace has a user and a group for each child: see
	// Spawn.User.
	OwnUsers bool `json:"own_users,omitempty"`
	// KeepRoot says that the host forbids mounts in new namespaces too, as AppArmor's profile of
	// containers does: the root stays.
	KeepRoot bool `json:"keep_root,omitempty"`
}

// MaxEntrances is the most files that a process enters its control group by.
const MaxEntrances = 8

// Spawn asks the zygote, or a template, for a sentry. Descriptors come with it: the lifeline, the
// listener, the memory, the files, the log, and at most MaxEntrances files to which the
// sentry writes "0" to enter its control group.
type Spawn struct {
	// User is the user, and the group, that the sentry is, as the user namespace of its parent
	// numbers them; 0 for the parent's own.
	User int `json:"user,omitempty"`
	// Template, which only the zygote makes, is set for a template in place of a sentry.
	Template *SpawnTemplate `json:"template,omitempty"`
}

// SpawnTemplate asks the zygote for a template: a fork of it that loads the state of a frozen sandbox, and forks
// itself into sentries that need not load it. Descriptors: the socket on which it is asked, its log, and files of its
// control group, as of a Spawn. The first packet on the socket is a Decode, and the answer a Spawned; Spawns follow.
type SpawnTemplate struct {
	// Users are the users, and groups, from Spawn.User on that its user namespace has, where they are numbered
	// from 0 on, and the template is the first of them.
	Users int `json:"users"`
}

// Decode says what a template loads. Descriptors: as of a Load, without a channel.
type Decode struct {
	Generations []string   `json:"generations"`
	Limits      api.Limits `json:"limits"`            // of each of its sentries
	Network     bool       `json:"network,omitempty"` // they will have a channel
}

// Spawned is the answer to a Spawn. The zygote also sends one, with its own process id,
// when it is ready.
type Spawned struct {
	PID int `json:"pid"` // in the daemon's pid namespace, which is the zygote's
}
