package node

import (
	"fmt"
	"slices"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	moby "github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/test/harness"
)

// profile is what a container engine takes from the processes of a container.
type profile struct {
	name         string
	user         int
	capabilities []uintptr // that it leaves
	filter       bool      // Docker's filter of system calls
	besides      []string  // calls that the engine's filter allows besides
	denied       []string  // calls that AppArmor denies
}

// engineCapabilities are those that Docker and podman leave to root.
var engineCapabilities = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP,
	unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_SYS_CHROOT, unix.CAP_MKNOD, unix.CAP_AUDIT_WRITE, unix.CAP_SETFCAP,
}

// mounting are the calls that AppArmor's profile of containers denies.
var mounting = []string{"mount", "umount2", "pivot_root"}

// podmanAllows are the calls that podman's filter allows without CAP_SYS_ADMIN and Docker's does not.
var podmanAllows = []string{
	"clone", "clone3", "unshare", "setns", "mount", "umount2", "pivot_root", "mount_setattr", "move_mount", "open_tree", "fsopen", "fsconfig",
	"fsmount", "fspick", "sethostname", "setdomainname",
}

// profiles are the containers that people run ramet in.
var profiles = []profile{
	{name: "a user without capabilities or filter", user: harness.OrdinaryUser},
	{name: "docker", capabilities: engineCapabilities, filter: true, denied: mounting},
	{name: "docker as a user", user: harness.OrdinaryUser, filter: true, denied: mounting},
	{name: "docker without capabilities", filter: true, denied: mounting},
	{name: "mounts denied", capabilities: engineCapabilities, denied: mounting},
	{name: "mounts denied as a user", user: harness.OrdinaryUser, denied: mounting},
	{name: "podman", capabilities: engineCapabilities, filter: true, besides: podmanAllows},
	{name: "podman as a user", user: harness.OrdinaryUser, filter: true, besides: podmanAllows},
}

// enter takes from the process what the profile takes.
func (p *profile) enter() error {
	if err := dropRights(p.user, p.capabilities); err != nil {
		return err
	}
	policy, err := p.policy()
	if err != nil || policy == nil {
		return err
	}
	return seccomp.LoadFilter(seccomp.Filter{NoNewPrivs: true, Flag: seccomp.FilterFlagTSync, Policy: *policy})
}

// policy returns the filter of the profile, or nil.
func (p *profile) policy() (*seccomp.Policy, error) {
	machine, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	known := func(names []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := machine.SyscallNames[name]; return !ok })
	}
	policy := &seccomp.Policy{DefaultAction: seccomp.ActionAllow}
	if len(p.denied) > 0 {
		policy.Syscalls = append(policy.Syscalls, seccomp.SyscallGroup{Names: p.denied, Action: seccomp.ActionErrno | seccomp.Action(unix.EACCES)})
	}
	if len(p.besides) > 0 {
		policy.Syscalls = append(policy.Syscalls, seccomp.SyscallGroup{Names: known(p.besides), Action: seccomp.ActionAllow})
	}
	if p.filter {
		rules, err := moby.GetDefaultProfile(p.spec())
		if err != nil {
			return nil, err
		}
		policy.DefaultAction = seccomp.ActionErrno // EPERM
		allow := seccomp.SyscallGroup{Action: seccomp.ActionAllow}
		for _, rule := range rules.Syscalls {
			names := known(rule.Names)
			switch {
			case len(names) == 0:
			case rule.Action == specs.ActErrno && rule.ErrnoRet != nil:
				policy.Syscalls = append(policy.Syscalls, seccomp.SyscallGroup{Names: names, Action: seccomp.ActionErrno | seccomp.Action(*rule.ErrnoRet)})
			case rule.Action != specs.ActAllow:
				return nil, fmt.Errorf("%v: the action %s is not known", names, rule.Action)
			case len(rule.Args) == 0:
				allow.Names = append(allow.Names, names...)
			default:
				conditions, err := conditionsOf(rule.Args)
				if err != nil {
					return nil, err
				}
				for _, name := range names {
					allow.NamesWithCondtions = append(allow.NamesWithCondtions, seccomp.NameWithConditions{Name: name, Conditions: conditions})
				}
			}
		}
		slices.Sort(allow.Names)
		allow.Names = slices.Compact(allow.Names)
		policy.Syscalls = append(policy.Syscalls, allow)
	}
	if len(policy.Syscalls) == 0 {
		return nil, nil
	}
	return policy, nil
}

// spec returns the process of a container, of which the filter depends on its capabilities.
func (p *profile) spec() *specs.Spec {
	caps := &specs.LinuxCapabilities{}
	if slices.Contains(p.capabilities, uintptr(unix.CAP_SYS_CHROOT)) {
		caps.Bounding = []string{"CAP_SYS_CHROOT"} // the only one of them that the filter asks for
	}
	return &specs.Spec{Process: &specs.Process{Capabilities: caps}}
}

func conditionsOf(args []specs.LinuxSeccompArg) (all seccomp.ArgumentConditions, err error) {
	for _, a := range args {
		c := seccomp.Condition{Argument: uint32(a.Index), Value: a.Value}
		switch {
		case a.Op == specs.OpEqualTo:
			c.Operation = seccomp.Equal
		case a.Op == specs.OpLessThan:
			c.Operation = seccomp.LessThan
		case a.Op == specs.OpMaskedEqual && a.ValueTwo == 0:
			c.Operation = seccomp.BitsNotSet
		default:
			return nil, fmt.Errorf("the condition %+v is not known", a)
		}
		all = append(all, c)
	}
	return all, nil
}
