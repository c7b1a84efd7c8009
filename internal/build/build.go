package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/build/contextdir"
	"ramet.dev/ramet/internal/build/dockerfile"
)

// Metadata of the snapshots that are kept for later builds.
const (
	// MetaStep is the instruction of the state.
	MetaStep = "build.step"
	// MetaImage is the name of the image whose build made it.
	MetaImage = "build.image"
)

const (
	// idleTimeout ends the sandboxes of a build whose process is gone.
	idleTimeout = 30 * time.Minute
	// cleanup bounds how long the end of a build takes.
	cleanup = 30 * time.Second
	// keyLength is how much of a key is in names.
	keyLength = 32
)

// Request asks for a build.
type Request struct {
	File    string // name of the Dockerfile in errors
	Text    []byte
	Context *contextdir.Dir
	Name    string // of the image
	Target  string
	Args    map[string]string
	Network *api.NetworkRequest // of RUN; nil for none
	Secrets map[string]string   // of RUN --mount=type=secret, by id
	// TrustHostCA is whether steps with a network trust the authorities of the host, which the image has then too; nil
	// for the default of sandboxes.
	TrustHostCA *bool
	NoCache     bool
	Pull        bool      // base images are asked for at their registries, also if they are there
	Out         io.Writer // steps and the output of their commands
}

// builder carries out one build.
type builder struct {
	Request
	client *client.Client
	ctx    context.Context
	images map[string]*api.Image
	states map[*dockerfile.Stage]state
	live   map[*dockerfile.Stage]string // sandboxes in the state after the last step of a stage
	made   []string                     // all sandboxes
}

// state is a file system that sandboxes are made of: a snapshot, or an image.
type state struct{ snapshot, image string }

func (s state) ref() string {
	if s.snapshot != "" {
		return s.snapshot
	}
	return s.image
}

// Run makes an image of a Dockerfile.
func Run(ctx context.Context, c *client.Client, req Request) (_ *api.Image, err error) {
	file, err := dockerfile.Parse(req.File, req.Text)
	if err != nil {
		return nil, err
	}
	b := &builder{
		Request: req, client: c, ctx: ctx, images: map[string]*api.Image{},
		states: map[*dockerfile.Stage]state{}, live: map[*dockerfile.Stage]string{},
	}
	defer b.end()
	secrets := map[string]bool{}
	for id := range req.Secrets {
		secrets[id] = true
	}
	setting := ""
	if req.TrustHostCA != nil && !*req.TrustHostCA {
		setting = "no authorities of the host"
	}
	plan, err := file.Plan(dockerfile.Options{
		Target: req.Target, Args: req.Args, NoNet: req.Network == nil, Setting: setting, Secrets: secrets, Image: b.image,
		Context: func(s dockerfile.Sources) (dockerfile.Files, error) { return req.Context.Select(ctx, s.Patterns) },
	})
	if err != nil {
		return nil, err
	}
	for _, name := range plan.Unused {
		b.say("warning: no ARG takes the build argument %s", name)
	}
	target := plan.Target()
	message := "Dockerfile, build " + target.ResultKey()[:keyLength]
	if img := b.present(message); img != nil {
		b.say("CACHED %s", req.Name)
		return img, nil
	}
	if err := b.make(target); err != nil {
		return nil, err
	}
	ref := b.live[target]
	if ref == "" && b.states[target].snapshot != "" {
		ref = b.states[target].snapshot
	}
	if ref == "" {
		if ref, err = b.sandbox(target); err != nil {
			return nil, err
		}
	}
	return c.Images.Commit(ctx, ref, api.CommitRequest{Name: req.Name, Message: message, Replace: true, Config: &target.Config}, func(api.Progress) {})
}

// present returns the image of the request's name if the same build made it.
func (b *builder) present(message string) *api.Image {
	if b.NoCache {
		return nil
	}
	img, err := b.client.Images.Get(b.ctx, b.Name)
	if err != nil || !strings.HasSuffix(img.Source, ": "+message) {
		return nil
	}
	return img
}

func (b *builder) say(format string, args ...any) {
	fmt.Fprintf(b.Out, format+"\n", args...) // nobody can be told that it fails
}

// end destroys the sandboxes of the build.
func (b *builder) end() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), cleanup)
	defer cancel()
	for _, id := range b.made {
		_ = b.client.Sandboxes.Destroy(ctx, id) // its idle timeout ends it otherwise
	}
}

// image returns a base image. It is pulled if it is not there.
func (b *builder) image(ref string) (*api.Image, error) {
	if img := b.images[ref]; img != nil {
		return img, nil
	}
	quiet := func(api.Progress) {}
	var img *api.Image
	var err error
	switch {
	case ref == dockerfile.Scratch:
		img, err = b.client.Images.Create(b.ctx, api.ImageRequest{Name: ref, Build: &api.ImageBuild{From: ref}, IfMissing: true}, quiet)
	case b.Pull && strings.ContainsAny(ref, "/:@"):
		b.say("PULL %s", ref)
		img, err = b.client.Images.Create(b.ctx, api.ImageRequest{Ref: ref}, quiet)
	default:
		if img, err = b.client.Images.Get(b.ctx, ref); api.CodeOf(err) != api.CodeNotFound {
			break
		}
		b.say("PULL %s", ref)
		img, err = b.client.Images.Create(b.ctx, api.ImageRequest{Ref: ref, IfMissing: true}, quiet)
	}
	if err != nil {
		return nil, err
	}
	b.images[ref] = img
	return img, nil
}

// stateName is the name of the snapshot, or of the image, that a state is kept as.
func stateName(key string) string { return statePrefix + key[:keyLength] }

// cached returns the state of a key.
func (b *builder) cached(key string) (_ state, found bool, err error) {
	if b.NoCache {
		return state{}, false, nil
	}
	snap, err := b.client.Snapshots.Get(b.ctx, stateName(key))
	if err == nil && snap.State != api.SnapshotFailed {
		return state{snapshot: snap.ID}, true, nil
	}
	if err != nil && api.CodeOf(err) != api.CodeNotFound {
		return state{}, false, err
	}
	img, err := b.client.Images.Get(b.ctx, stateName(key))
	if api.CodeOf(err) == api.CodeNotFound {
		return state{}, false, nil
	}
	if err != nil {
		return state{}, false, err
	}
	return state{image: img.ID}, true, nil
}

// make brings a stage to its state after the last step.
func (b *builder) make(stage *dockerfile.Stage) error {
	if _, ok := b.states[stage]; ok {
		return nil
	}
	first, from := 0, state{}
	for i := len(stage.Steps) - 1; i >= 0; i-- {
		found, ok, err := b.cached(stage.Steps[i].Key)
		if err != nil {
			return err
		}
		if ok {
			first, from = i+1, found
			break
		}
	}
	for i, step := range stage.Steps[:first] {
		b.say("CACHED %s", b.label(stage, i, step))
	}
	if first == 0 {
		switch {
		case stage.Base != nil:
			if err := b.make(stage.Base); err != nil {
				return err
			}
			from = b.states[stage.Base]
		default:
			from = state{image: stage.Image.ID}
		}
	}
	w := &worker{builder: b, from: from}
	for i, step := range stage.Steps[first:] {
		for _, source := range step.Sources() {
			if err := b.make(source); err != nil {
				return err // it has the line in that stage
			}
		}
		b.say("%s", b.label(stage, first+i, step))
		if err := w.carryOut(step); err != nil {
			return api.Errorf(api.CodeOf(err), "%s:%d: %w", b.File, step.Line, err)
		}
	}
	b.states[stage] = w.from
	if w.id != "" {
		b.live[stage] = w.id
	}
	return nil
}

// label describes a step to people.
func (b *builder) label(stage *dockerfile.Stage, i int, step *dockerfile.Step) string {
	return fmt.Sprintf("[%s %d/%d] %s", stage.Name, i+1, len(stage.Steps), step.Text)
}

// start makes a sandbox.
func (b *builder) start(from state, volumes ...api.VolumeMount) (string, error) {
	idle := idleTimeout.Milliseconds()
	network := b.Network
	if network == nil {
		network = closed()
	}
	sb, err := b.client.Sandboxes.Create(b.ctx, api.CreateRequest{
		Image: from.ref(), Pull: api.PullNever, Network: network, Volumes: volumes, TrustHostCA: b.TrustHostCA,
		Lifecycle: &api.LifecycleRequest{IdleTimeoutMS: &idle, IdleAction: api.IdleDestroy},
	})
	if err != nil {
		return "", err
	}
	b.made = append(b.made, sb.ID)
	return sb.ID, nil
}

func closed() *api.NetworkRequest { return &api.NetworkRequest{Profile: "none"} }

// sandbox returns a sandbox in the state after the last step of a stage.
func (b *builder) sandbox(stage *dockerfile.Stage) (string, error) {
	if err := b.make(stage); err != nil {
		return "", err
	}
	if id := b.live[stage]; id != "" {
		return id, nil
	}
	id, err := b.start(b.states[stage])
	if err == nil {
		b.live[stage] = id
	}
	return id, err
}

// keep keeps the state after a step for later builds, and returns the snapshot.
func (b *builder) keep(sandbox string, step *dockerfile.Step) (string, error) {
	name := stateName(step.Key)
	req := api.SnapshotRequest{Name: name, Metadata: map[string]string{MetaStep: step.Text, MetaImage: b.Name}}
	snap, err := b.client.Snapshots.Create(b.ctx, sandbox, req)
	if api.CodeOf(err) == api.CodeNameTaken {
		old, gerr := b.client.Snapshots.Get(b.ctx, name)
		if gerr == nil && !b.NoCache && old.State != api.SnapshotFailed {
			return old.ID, nil // of another build at the same time
		}
		if gerr == nil {
			gerr = b.client.Snapshots.Delete(b.ctx, old.ID, api.SnapshotDeletion{Flatten: true})
		}
		if gerr != nil && api.CodeOf(gerr) != api.CodeNotFound {
			return "", errors.Join(err, gerr)
		}
		snap, err = b.client.Snapshots.Create(b.ctx, sandbox, req)
	}
	if err != nil {
		return "", err
	}
	return snap.ID, nil
}

// worker carries out the steps of a stage.
type worker struct {
	*builder
	from   state  // after the last step
	id     string // sandbox in that state; empty if there is none yet
	closed bool   // its network, for one step
}

// carryOut carries out a step and keeps the state.
func (w *worker) carryOut(step *dockerfile.Step) (err error) {
	if step.Run != nil && step.Run.Apart() {
		return w.runApart(step)
	}
	if w.id == "" {
		if w.id, err = w.start(w.from); err != nil {
			return err
		}
	}
	if err := w.step(step); err != nil {
		return err
	}
	snap, err := w.keep(w.id, step)
	if err != nil {
		return fmt.Errorf("keep the state: %w", err)
	}
	w.from = state{snapshot: snap}
	return nil
}

func (w *worker) step(s *dockerfile.Step) error {
	switch {
	case s.Run != nil:
		return w.run(s.Run)
	case s.Dir != nil:
		owner, err := w.owner(s.Dir.User)
		if err != nil {
			return err
		}
		return w.makeDir(s.Dir.Path, owner)
	}
	return w.copy(s.Copy)
}

// run runs a command with its mounts. Processes that it left behind are killed, as in a container whose first
// process ended.
func (w *worker) run(r *dockerfile.Run) error {
	if err := w.close(r.NoNet); err != nil {
		return err
	}
	env, unmount, err := w.mount(r)
	if err != nil {
		return err
	}
	if r.Script != "" {
		mode := uint32(0o755)
		if _, err := w.client.Files.Write(w.ctx, w.id, api.WriteRequest{FileRef: api.FileRef{Path: dockerfile.ScriptPath}, Mode: &mode, Parents: true}, strings.NewReader(r.Script)); err != nil {
			return err
		}
		unmount = append(unmount, dockerfile.ScriptPath)
	}
	res, err := w.client.Processes.ExecStream(w.ctx, w.id, api.ExecRequest{Argv: r.Argv, Env: env, User: r.User, Cwd: r.Cwd}, api.ExecIO{Stdout: w.Out, Stderr: w.Out})
	if err != nil {
		return err
	}
	if !res.OK {
		return api.Errorf(api.CodeUnsupported, "RUN ended with exit code %d", res.ExitCode)
	}
	left, err := w.client.Processes.List(w.ctx, w.id, false)
	if err != nil {
		return err
	}
	for _, p := range left {
		if err := w.client.Processes.Signal(w.ctx, w.id, p.PID, api.SignalRequest{Signal: "KILL"}); err != nil && api.CodeOf(err) != api.CodeNotFound {
			return err
		}
	}
	return w.remove(unmount)
}

// close takes the network away, or gives it back.
func (w *worker) close(closing bool) error {
	if closing == w.closed || w.Network == nil {
		return nil
	}
	network := w.Network
	if closing {
		network = closed()
	}
	_, err := w.client.Networks.Set(w.ctx, w.id, *network)
	w.closed = closing && err == nil
	return err
}

// isDir reports whether a path is a directory, or a link to one.
func (w *worker) isDir(p string) (bool, error) {
	info, err := w.client.Files.Stat(w.ctx, w.id, api.FileRef{Path: p})
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil
	}
	return err == nil && info.Type == "dir", err
}

// makeDir makes a directory and those above it, which get the owner if they are made.
func (w *worker) makeDir(dir string, owner contextdir.Attributes) error {
	above, missing := dir, []string{}
	for {
		is, err := w.isDir(above)
		if err != nil {
			return err
		}
		if is || above == "/" {
			break
		}
		missing = append(missing, path.Base(above))
		above = path.Dir(above)
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Reverse(missing)
	return w.send(above, func(to *archive) error {
		for i := range missing {
			if err := to.dir(path.Join(missing[:i+1]...), owner); err != nil {
				return err
			}
		}
		return nil
	})
}
