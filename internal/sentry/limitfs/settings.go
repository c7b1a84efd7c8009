package limitfs

import (
	"bytes"
	gocontext "context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/usermem"
)

// SettingsKey names the Settings in the kernel's saved state.
const SettingsKey = "ramet.settings"

// settingFiles are the files of /proc/sys that scripts write when they set up a program, with their first values. What
// is written is kept and shown, and has no effect: gVisor has none of these limits, or fixed ones.
var settingFiles = map[string]string{
	"fs/aio-max-nr":                      "1048576",
	"fs/file-max":                        "9223372036854775807",
	"fs/inotify/max_queued_events":       "16384",
	"fs/inotify/max_user_instances":      "8192",
	"fs/inotify/max_user_watches":        "1048576",
	"fs/suid_dumpable":                   "0",
	"kernel/core_pattern":                "core",
	"kernel/dmesg_restrict":              "1",
	"kernel/kptr_restrict":               "1",
	"kernel/msgmax":                      "8192",
	"kernel/msgmnb":                      "16384",
	"kernel/msgmni":                      "32000",
	"kernel/panic":                       "0",
	"kernel/perf_event_paranoid":         "4",
	"kernel/pid_max":                     "65536",
	"kernel/randomize_va_space":          "2",
	"kernel/sem":                         "32000\t1024000000\t500\t32000",
	"kernel/shmall":                      "18446744073692774399",
	"kernel/shmmax":                      "18446744073692774399",
	"kernel/shmmni":                      "4096",
	"kernel/threads-max":                 "65536",
	"net/core/netdev_max_backlog":        "1000",
	"net/core/optmem_max":                "131072",
	"net/core/rmem_default":              "212992",
	"net/core/rmem_max":                  "212992",
	"net/core/somaxconn":                 "1024",
	"net/core/wmem_default":              "212992",
	"net/core/wmem_max":                  "212992",
	"net/ipv4/tcp_fin_timeout":           "60",
	"net/ipv4/tcp_keepalive_intvl":       "75",
	"net/ipv4/tcp_keepalive_probes":      "9",
	"net/ipv4/tcp_keepalive_time":        "7200",
	"net/ipv4/tcp_max_syn_backlog":       "1024",
	"net/ipv4/tcp_max_tw_buckets":        "65536",
	"net/ipv4/tcp_mtu_probing":           "0",
	"net/ipv4/tcp_retries2":              "15",
	"net/ipv4/tcp_slow_start_after_idle": "1",
	"net/ipv4/tcp_syn_retries":           "3",
	"net/ipv4/tcp_synack_retries":        "5",
	"net/ipv4/tcp_syncookies":            "1",
	"net/ipv4/tcp_tw_reuse":              "2",
	"vm/dirty_background_ratio":          "10",
	"vm/dirty_ratio":                     "20",
	"vm/drop_caches":                     "0",
	"vm/max_map_count":                   "2147483647",
	"vm/min_free_kbytes":                 "67584",
	"vm/nr_hugepages":                    "0",
	"vm/overcommit_memory":               "0",
	"vm/overcommit_ratio":                "50",
	"vm/swappiness":                      "60",
	"vm/vfs_cache_pressure":              "100",
	"vm/zone_reclaim_mode":               "0",
}

// Settings are the values that programs have written to files of /proc/sys.
type Settings struct {
	mu     sync.Mutex
	values map[string]string
	text   string // values as JSON, which is saved as a single object
}

// settings are those of the kernel. A process has a single kernel.
var settings = &Settings{}

// UseSettings makes saved, which may be nil, the settings of the kernel, and returns what is to be saved with it.
func UseSettings(saved *Settings) *Settings {
	if saved != nil {
		settings = saved
	}
	return settings
}

func (s *Settings) value(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.values[name]; ok {
		return v
	}
	return settingFiles[name]
}

var (
	number  = regexp.MustCompile(`^-?[0-9]+$`)
	numbers = regexp.MustCompile(`^[0-9\t]+$`)
)

// set takes what a program has written. As on Linux, the first of several numbers can be written alone.
func (s *Settings) set(name, written string) bool {
	value := strings.TrimSpace(strings.TrimRight(written, "\x00"))
	if numbers.MatchString(settingFiles[name]) {
		now, given := strings.Fields(s.value(name)), strings.Fields(value)
		if len(given) == 0 || len(given) > len(now) {
			return false
		}
		for _, g := range given {
			if !number.MatchString(g) {
				return false
			}
		}
		value = strings.Join(append(given, now[len(given):]...), "\t")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[string]string{}
	}
	s.values[name] = value
	text, err := json.Marshal(s.values)
	s.text = string(text)
	return err == nil
}

// setting is a file of Settings.
type setting struct {
	kernfs.DynamicBytesFile
	name string
}

// Generate implements vfs.DynamicBytesSource.Generate.
func (f *setting) Generate(_ context.Context, buf *bytes.Buffer) error {
	fmt.Fprintln(buf, settings.value(f.name))
	return nil
}

// maxSetting is the longest text that can be written, in bytes.
const maxSetting = 255

// Write implements vfs.WritableDynamicBytesSource.Write.
func (f *setting) Write(ctx context.Context, _ *vfs.FileDescription, src usermem.IOSequence, offset int64) (int64, error) {
	n := src.NumBytes()
	if offset != 0 || n > maxSetting {
		return 0, linuxerr.EINVAL
	}
	b := make([]byte, n)
	if _, err := src.CopyIn(ctx, b); err != nil {
		return 0, err
	}
	if !settings.set(f.name, string(b)) {
		return 0, linuxerr.EINVAL
	}
	return n, nil
}

// SetStat implements kernfs.Inode.SetStat: programs truncate the file before they write.
func (f *setting) SetStat(_ context.Context, _ *vfs.Filesystem, _ *auth.Credentials, opts vfs.SetStatOptions) error {
	if opts.Stat.Mask&^linux.STATX_SIZE != 0 {
		return linuxerr.EPERM
	}
	return nil
}

func (*Settings) StateTypeName() string { return prefix + "Settings" }
func (*Settings) StateFields() []string { return []string{"text"} }
func (s *Settings) StateSave(sink state.Sink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sink.Save(0, &s.text)
}
func (s *Settings) StateLoad(_ gocontext.Context, src state.Source) {
	src.Load(0, &s.text)
	src.AfterLoad(func() {
		if s.text != "" && json.Unmarshal([]byte(s.text), &s.values) != nil {
			s.values = nil // it was damaged: nothing depends on it
		}
	})
}

func (*setting) StateTypeName() string { return prefix + "setting" }
func (*setting) StateFields() []string { return []string{"DynamicBytesFile", "name"} }
func (f *setting) StateSave(sink state.Sink) {
	sink.Save(0, &f.DynamicBytesFile)
	sink.Save(1, &f.name)
}
func (f *setting) StateLoad(_ gocontext.Context, src state.Source) {
	src.Load(0, &f.DynamicBytesFile)
	src.Load(1, &f.name)
}

func init() {
	state.Register((*Settings)(nil))
	state.Register((*setting)(nil))
}
