package branching

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/inspect"
	"ramet.dev/ramet/internal/node/lineage"
	"ramet.dev/ramet/internal/node/networks"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/reach"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
)

// CreatorConfig is what a Creator works with besides a Forker.
type CreatorConfig struct {
	Inspector *inspect.Inspector
	Remains   *lineage.Remains
	Secrets   networks.Secrets
	// Command is the program by which a sandbox controls itself, sealed; nil if none may.
	Command *os.File
	// HostMemory says how much memory the machine has.
	HostMemory quota.HostMemory
	// FilesDir is where the files of sandboxes are.
	FilesDir string
}

// Creator makes sandboxes of images. It is safe for concurrent use.
type Creator struct {
	forker *Forker
	cfg    CreatorConfig
}

// NewCreator returns a creator, which restores snapshots with k.
func NewCreator(k *Forker, cfg CreatorConfig) *Creator { return &Creator{k, cfg} }

// Create makes a sandbox from an image or a snapshot.
func (c *Creator) Create(ctx context.Context, req api.CreateRequest) (*api.Sandbox, error) {
	if err := api.ValidEnv("env", req.Env); err != nil {
		return nil, err
	}
	if err := api.ValidEnv("secret_env", req.SecretEnv); err != nil {
		return nil, err
	}
	if err := api.ValidHostname("hostname", req.Hostname); err != nil {
		return nil, err
	}
	if err := c.validLimits(req.Limits); err != nil {
		return nil, err
	}
	if err := api.ValidMetadata("metadata", req.Metadata); err != nil {
		return nil, err
	}
	if err := cmp.Or(req.SelfControl.Valid(), req.Pull.Valid("pull"), req.Lifecycle.Valid(), req.AutoCheckpoint.Valid()); err != nil {
		return nil, err
	}
	if req.SelfControl != nil && c.cfg.Command == nil {
		return nil, api.Errorf(api.CodeUnsupported, "this program was built without the command by which sandboxes control themselves: build it with make build")
	}
	secrets, err := c.cfg.Secrets.Given(ctx, req.Secrets)
	if err != nil {
		return nil, err
	}
	defer secrets.Clear()
	if api.IsID(api.KindSnapshot, req.Image) {
		return c.createFromSnapshot(ctx, req, secrets)
	}
	img, isSnapshot, err := c.findImage(ctx, &req)
	if err != nil {
		return nil, err
	}
	if isSnapshot {
		return c.createFromSnapshot(ctx, req, secrets)
	}
	defer c.forker.cfg.Images.UseImage(img.ID)()
	if err := access.From(ctx).MayMakeTree("sandboxes of images"); err != nil {
		return nil, err
	}
	id, tenant := api.NewID(api.KindSandbox), access.From(ctx).Tenant
	if err := c.forker.cfg.Sandboxes.Names.Reserve(tenant, []string{req.Name}, []string{id}); err != nil {
		return nil, err
	}
	rec := sandboxes.NewRecord(tenant, id, req.Name, 0)
	s := &rec.Sandbox
	s.Identity.Hostname = cmp.Or(req.Hostname, s.Identity.Hostname)
	s.Image, s.Limits, s.Metadata, s.Lifecycle = img.ID, req.Limits, req.Metadata, (*api.Lifecycle)(nil).Inherited(req.Lifecycle, c.forker.cfg.Clock.Now())
	s.AutoCheckpoint, s.TrustHostCA = req.AutoCheckpoint, req.TrustHostCA
	if len(img.Names) > 0 {
		s.ImageName = img.Names[0]
	}
	s.Env, s.Cwd, s.User = mergeEnv(img.Env, req.Env), img.Cwd, img.User
	rec.SetSecretEnv(req.SecretEnv)
	if req.SelfControl != nil {
		s.SelfControl = req.SelfControl
		rec.Control = &selfcontrol.Grant{Budget: id}
	}
	mounts, release, err := c.forker.cfg.Volumes.Use(ctx, nil, req.Volumes)
	if err != nil {
		c.forker.cfg.Sandboxes.Names.Release(tenant, req.Name)
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	defer release()
	s.Volumes = mounts
	granted, err := c.forker.cfg.Networks.Grant(ctx, networks.Owner{Tenant: tenant, Tree: id, Secrets: secrets}, req.Network, networks.Branch{}, reach.Network{})
	if err != nil {
		c.forker.cfg.Sandboxes.Names.Release(tenant, req.Name)
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	rec.SetNetwork(granted)
	s.Env = networks.Environment(s.Env, &granted.Kept)
	made, err := c.forker.cfg.Admission.Admit(ctx, tenant, nil, 1)
	if err != nil {
		c.forker.cfg.Sandboxes.Names.Release(tenant, req.Name)
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	defer made()
	var b *sandboxes.Instance
	err = secrets.StoreWith(ctx, func() (err error) {
		b, err = c.boot(ctx, rec, req.Require)
		return err
	})
	if err != nil {
		c.forker.cfg.Sandboxes.Names.Release(tenant, req.Name)
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	audit.Of(ctx).Object(b.ID)
	audit.Of(ctx).Set(func(d *api.AuditDetails) { d.Image = img.ID })
	return c.cfg.Inspector.Describe(ctx, b), nil
}

// findImage returns the image of a request, which it gets first as the request says, or reports
// that the request means a snapshot.
func (c *Creator) findImage(ctx context.Context, req *api.CreateRequest) (img api.Image, isSnapshot bool, err error) {
	policy := req.PullPolicy()
	if policy != api.PullAlways {
		img, err = c.forker.cfg.Images.FindImage(ctx, req.Image)
		if api.CodeOf(err) != api.CodeNotFound {
			return img, false, err
		}
		if _, serr := c.forker.cfg.Snapshots.Find(ctx, req.Image); serr == nil {
			return img, true, nil
		}
		if policy == api.PullNever {
			return img, false, err
		}
	}
	got, err := c.forker.cfg.Images.CreateImage(ctx, req.ImageRequest(), func(api.Progress) {})
	if err != nil {
		return img, false, err
	}
	return *got, false, nil
}

// boot starts the sandbox of a record from its image.
func (c *Creator) boot(ctx context.Context, rec sandboxes.Record, require []string) (_ *sandboxes.Instance, err error) {
	ctx, ended := c.forker.cfg.Meter.Observe(ctx, "create")
	defer ended(&err)
	image, err := c.forker.cfg.Images.OpenImage(rec.Sandbox.Image)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	sentry, err := c.forker.prepare(ctx, "", &rec, require)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			sentry.Kill()
		}
	}()
	var command *os.File
	if rec.Control != nil {
		command = c.cfg.Command
	}
	writeTrusted, err := c.forker.cfg.Trust.OfImage(ctx, &rec, image)
	if err != nil {
		return nil, err
	}
	channel, err := spawn.Boot(ctx, sentry, rec.ForSentry(), image, command)
	if err != nil {
		return nil, err
	}
	if channel != nil {
		defer channel.Close()
	}
	if writeTrusted != nil {
		if err := writeTrusted(ctx, sentry); err != nil {
			return nil, err
		}
	}
	if err := spawn.Detach(ctx, sentry); err != nil {
		return nil, err
	}
	b := sandboxes.New(rec)
	if err := c.forker.cfg.Sandboxes.Install(ctx, []sandboxes.Placement{{Instance: b, Record: rec, Sentry: sentry, Channel: channel}}, c.cfg.Remains.Grant(&rec)...); err != nil {
		c.cfg.Remains.DropBudget(rec.Control)
		return nil, err
	}
	return b, nil
}

// createFromSnapshot is a restore of one with the fields of a create.
func (c *Creator) createFromSnapshot(ctx context.Context, req api.CreateRequest, secrets *networks.GivenSecrets) (*api.Sandbox, error) {
	if req.SelfControl != nil {
		return nil, api.Invalid("self_control", "a sandbox from a snapshot may do what the one that was frozen might")
	}
	if req.TrustHostCA != nil {
		return nil, api.Invalid("trust_host_ca", "a sandbox from a snapshot trusts what the one that was frozen did")
	}
	if req.Limits != (api.Limits{}) || len(req.Require) > 0 {
		return nil, api.Invalid("limits", "a sandbox from a snapshot has the limits and layers of the one that was frozen")
	}
	if len(req.SecretEnv) > 0 {
		return nil, api.Invalid("secret_env", "a sandbox from a snapshot has no secret variables")
	}
	if req.AutoCheckpoint != nil {
		return nil, api.Invalid("auto_checkpoint", "a sandbox from a snapshot is checkpointed as the one that was frozen")
	}
	var names []string
	if req.Name != "" {
		names = []string{req.Name}
	}
	out, err := c.forker.restoreWith(ctx, req.Image, api.RestoreRequest{Count: 1, Names: names, Metadata: req.Metadata, Env: req.Env, Lifecycle: req.Lifecycle, Network: req.Network, Volumes: req.Volumes, Hostname: req.Hostname}, secrets)
	if err != nil {
		return nil, err
	}
	if e := out.Children[0].Error; e != nil {
		return nil, e
	}
	made := out.Children[0].Sandbox
	if sb, err := c.cfg.Inspector.Get(ctx, made.ID); err == nil {
		return sb, nil
	}
	return made, nil // somebody was quick to end it
}

// mergeEnv returns an image's environment with more on top.
func mergeEnv(image []string, more map[string]string) map[string]string {
	env := map[string]string{}
	for _, kv := range image {
		for i := range len(kv) {
			if kv[i] == '=' {
				env[kv[:i]] = kv[i+1:]
				break
			}
		}
	}
	for k, v := range more {
		env[k] = v
	}
	return env
}

// validLimits checks the limits of a new sandbox on this machine.
func (c *Creator) validLimits(l api.Limits) error {
	return ValidLimits(l, c.cfg.HostMemory, c.cfg.FilesDir)
}

// ValidLimits checks the limits of a sandbox on this machine, whose files are in a directory.
func ValidLimits(l api.Limits, hostMemory quota.HostMemory, filesDir string) error {
	here := api.Machine{CPUs: runtime.NumCPU()}
	if l.MemoryMiB != 0 { // else the host need not be asked
		if _, total, err := hostMemory(); err == nil {
			here.MemoryMiB = total >> 20
		}
	}
	if l.DiskMiB != 0 {
		var st unix.Statfs_t
		if err := unix.Statfs(filesDir, &st); err == nil && st.Bsize > 0 {
			here.DiskMiB = int64(min(st.Blocks, math.MaxInt64/uint64(st.Bsize))) * st.Bsize >> 20
		}
	}
	return l.ValidOn(here)
}
