package values

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
)

// maxMiB bounds sizes, in MiB.
const maxMiB = 1 << 40

// ParseMiB parses a size such as 512M or 2G. It refuses a number without a unit, which some users
// mean as bytes and others as megabytes.
func ParseMiB(option, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	number := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(s), "B"), "I")
	unit := 0.0
	if n := len(number); n > 0 {
		unit = map[byte]float64{'M': 1, 'G': 1 << 10, 'T': 1 << 20}[number[n-1]]
		number = number[:n-1]
	}
	if n, err := strconv.ParseFloat(s, 64); err == nil && n > 0 && !math.IsInf(n, 0) {
		return 0, api.Invalid(option, "%q is a size without a unit: say %sM", s, s)
	}
	v, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange), unit == 0, !(v > 0): // false for NaN
		return 0, api.Invalid(option, "%q is not a size: say 512M or 2G", s)
	case v*unit > maxMiB:
		return 0, api.Invalid(option, "%q is more than %dT", s, maxMiB>>20)
	}
	return int64(math.Ceil(v * unit)), nil
}

// SizeVar adds an option for a size that ParseMiB parses. It is empty if it is not given.
func SizeVar(f *pflag.FlagSet, to *string, name, usage string) {
	f.Var(notEmpty{to, "is not a size: say 512M or 2G"}, name, usage)
}

// RequireVar adds an option for requirements. An empty list is refused, as it would require
// nothing.
func RequireVar(f *pflag.FlagSet, to *[]string, usage string) {
	f.Var(namesList{to}, "require", usage)
}

// DurationVar adds an option for a duration. It is 0 if it is not given.
func DurationVar(f *pflag.FlagSet, to *time.Duration, name, usage string) {
	f.Var((*duration)(to), name, usage)
}

// duration is a pflag.Value. The errors of all values here are the end of a sentence: flagError of
// package cli puts the option and the value before them.
type duration time.Duration

// Set implements pflag.Value.
func (d *duration) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil {
		if n, err := strconv.ParseFloat(s, 64); err == nil && n > 0 {
			if _, err := time.ParseDuration(s + "s"); err == nil {
				return fmt.Errorf("is a time without a unit: say %ss", s)
			}
		}
		return errors.New("is not a time: say 90s, 10m or 12h")
	}
	*d = duration(v)
	return nil
}

// String implements pflag.Value.
func (d *duration) String() string {
	if *d == 0 {
		return "" // help pages show no default then
	}
	return time.Duration(*d).String()
}

// Type implements pflag.Value.
func (*duration) Type() string { return "duration" }

// NameVar adds an option for a name. Package api judges which names are allowed.
func NameVar(f *pflag.FlagSet, to *string, usage string) {
	f.Var(notEmpty{to, "is not a name: leave the option out for none"}, "name", usage)
}

// StateVar adds an option for a state of sandboxes.
func StateVar(f *pflag.FlagSet, to *string, usage string) {
	f.Var(notEmpty{to, "is not creating, running, paused, hibernated or failed"}, "state", usage)
}

// AddressVar adds an option for a local address to listen on, by default the loopback address. An
// empty address is refused, because net.Listen takes it for all addresses.
func AddressVar(f *pflag.FlagSet, to *string, usage string) {
	*to = "127.0.0.1"
	f.Var(notEmpty{to, "is not an address: say 0.0.0.0 or :: for all"}, "address", usage)
}

// NotEmptyVar adds an option whose text must not be empty. why is the end of the sentence that
// refuses an empty text.
func NotEmptyVar(f *pflag.FlagSet, to *string, name, why, usage string) {
	f.Var(notEmpty{to, why}, name, usage)
}

// notEmpty is a pflag.Value that refuses an empty text, which is usually an unset variable of a
// script.
type notEmpty struct {
	to  *string
	why string
}

// Set implements pflag.Value.
func (n notEmpty) Set(s string) error {
	if s == "" {
		return errors.New(n.why)
	}
	*n.to = s
	return nil
}

// String implements pflag.Value.
func (n notEmpty) String() string {
	if n.to == nil { // pflag asks the zero value
		return ""
	}
	return *n.to
}

// Type implements pflag.Value.
func (notEmpty) Type() string { return "string" }

// namesList is a pflag.Value for names that are separated by commas and not empty. The option may
// be repeated.
type namesList struct{ to *[]string }

// Set implements pflag.Value.
func (n namesList) Set(s string) error {
	names := strings.Split(s, ",")
	if slices.Contains(names, "") {
		return errors.New("names nothing: leave the option out for none")
	}
	*n.to = append(*n.to, names...)
	return nil
}

// String implements pflag.Value.
func (n namesList) String() string {
	if n.to == nil { // pflag asks the zero value
		return ""
	}
	return strings.Join(*n.to, ",")
}

// Type implements pflag.Value.
func (namesList) Type() string { return "strings" }

// ValidCPUs refuses numbers that JSON cannot carry.
func ValidCPUs(n float64) error {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return api.Invalid("cpus", "%v is not a number of processors: say 0.5 or 2", n)
	}
	return nil
}

// ParsePairs parses options of the form K=V.
func ParsePairs(option string, args []string) (map[string]string, error) {
	var m map[string]string
	for _, arg := range args {
		k, v, ok := strings.Cut(arg, "=")
		if !ok || k == "" {
			return nil, api.Invalid(option, "%q is not KEY=VALUE", arg)
		}
		if m == nil {
			m = map[string]string{}
		}
		m[k] = v
	}
	return m, nil
}

// ParseSelfControl parses the self-control grant of a sandbox.
func ParseSelfControl(s string) (*api.SelfControl, error) {
	const option = "self-control"
	c := &api.SelfControl{}
	fields := map[string]*int{"forks": &c.Forks, "depth": &c.Depth, "snapshots": &c.Snapshots}
	given := map[string]bool{}
	for _, part := range strings.Split(s, ",") {
		k, v, _ := strings.Cut(part, "=")
		field := fields[k]
		n, err := strconv.Atoi(v)
		if field == nil || err != nil || n < 0 {
			return nil, api.Invalid(option, "%q is not forks=N, depth=N or snapshots=N", part)
		}
		if given[k] {
			return nil, api.Invalid(option, "%s is given twice", k)
		}
		*field, given[k] = n, true
	}
	if !given["forks"] || !given["depth"] {
		return nil, api.Invalid(option, "%q does not say forks=N and depth=N", s)
	}
	return c, nil
}

// ParseEnv parses options of the form K=V, or K for the value in the environment of this process.
func ParseEnv(args []string) (map[string]string, error) {
	args = slices.Clone(args)
	for i, arg := range args {
		if arg != "" && !strings.Contains(arg, "=") {
			v, ok := os.LookupEnv(arg)
			if !ok {
				return nil, api.Invalid("env", "%s is not set here; say %s=VALUE", arg, arg)
			}
			args[i] = arg + "=" + v
		}
	}
	return ParsePairs("env", args)
}

// ChildNames returns the names of n children: the name itself for one, name-1 to name-n for
// several, nil without a name.
func ChildNames(name string, n int) []string {
	switch {
	case name == "":
		return nil
	case n == 1:
		return []string{name}
	}
	names := make([]string, max(n, 0))
	for i := range names {
		names[i] = name + "-" + strconv.Itoa(i+1)
	}
	return names
}

// CompleteValues completes the values of an option of cmd.
func CompleteValues(cmd *cobra.Command, option string, values ...string) {
	// An error says that there is no such option.
	_ = cmd.RegisterFlagCompletionFunc(option, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// TimeoutMS converts a timeout to milliseconds. It refuses less than a millisecond, which would
// become 0, no timeout.
func TimeoutMS(field string, d time.Duration) (int64, error) {
	if d < 0 || (d > 0 && d < time.Millisecond) {
		return 0, api.Invalid(field, "%s is not a time of a millisecond or more", d)
	}
	return d.Milliseconds(), nil
}

func ParsePID(arg string) (int, error) {
	pid, err := strconv.Atoi(arg)
	if err != nil || pid < 1 {
		return 0, api.Invalid("pid", "%q is not a process id, as ramet ps shows them", arg)
	}
	return pid, nil
}

// QuietVar adds the option that makes a command print ids only.
func QuietVar(f *pflag.FlagSet, to *bool) { QuietOf(f, to, "ids") }

// QuietOf is QuietVar for a command whose results have other names than ids.
func QuietOf(f *pflag.FlagSet, to *bool, what string) {
	f.BoolVarP(to, "quiet", "q", false, "print "+what+" only")
}
