package api

import (
	"path"
	"strings"
	"time"
)

// Volume is a directory that outlives sandboxes, and that several of them share.
type Volume struct {
	ID        string    `json:"id" doc:"id of the volume"`
	Tenant    string    `json:"tenant,omitempty" doc:"tenant that owns it; absent for the default tenant"`
	Name      string    `json:"name" doc:"name of the volume"`
	CreatedAt time.Time `json:"created_at" doc:"when it was made"`
	LimitMiB  int64     `json:"limit_mib" doc:"what its files may take together"`
	UsedMiB   float64   `json:"used_mib" doc:"what its files take: their sizes, and 1 KiB for each file and directory"`
	Files     int64     `json:"files" doc:"number of its files and directories"`
	Sandboxes []string  `json:"sandboxes,omitempty" doc:"ids of the sandboxes that have it"`
}

// DefaultVolumeMiB is the limit of a volume that was made without one.
const DefaultVolumeMiB = 10 << 10

// VolumeRequest makes a volume.
type VolumeRequest struct {
	Name     string `json:"name" minLength:"1" doc:"name of the volume, unique among those of the tenant"`
	LimitMiB int64  `json:"limit_mib,omitempty" minimum:"1" maximum:"16777216" doc:"what its files may take together; 10240 if absent"`
}

// Valid returns an error unless the request can be carried out.
func (r *VolumeRequest) Valid() error {
	if err := ValidName("name", r.Name); err != nil {
		return err
	}
	if r.LimitMiB < 0 || r.LimitMiB > 16<<20 {
		return Invalid("limit_mib", "%d is not from 1 to %d", r.LimitMiB, 16<<20)
	}
	return nil
}

// VolumeMount is a volume in a sandbox.
type VolumeMount struct {
	Volume   string `json:"volume" minLength:"1" doc:"id or name of the volume; its id in answers"`
	Name     string `json:"name,omitempty" doc:"name of the volume, in answers"`
	Path     string `json:"path" minLength:"1" doc:"directory of the sandbox that it is at, which is made if there is none"`
	ReadOnly bool   `json:"read_only,omitempty" doc:"the sandbox can change nothing in it"`
}

// maxVolumeMounts is the most volumes of a sandbox.
const maxVolumeMounts = 16

// ValidVolumes returns an error unless a sandbox can have the volumes where had are already.
func ValidVolumes(field string, had, more []VolumeMount) error {
	if len(had)+len(more) > maxVolumeMounts {
		return Invalid(field, "a sandbox has at most %d volumes", maxVolumeMounts)
	}
	taken := map[string]bool{}
	for _, m := range had {
		taken[m.Path] = true
	}
	for _, m := range more {
		if err := validMountPath(m.Path); err != nil {
			return Invalid(field, "%q %w", m.Path, err)
		}
		if taken[m.Path] {
			return Invalid(field, "%q has a volume already", m.Path)
		}
		taken[m.Path] = true
	}
	return nil
}

func validMountPath(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.ContainsRune(p, 0) || len(p) > 4000 {
		return Errorf(CodeInvalid, "is not an absolute path without ., .., doubled or final slashes, of at most 4000 bytes")
	}
	for _, kernel := range []string{"/proc", "/sys", "/dev"} {
		if p == kernel || strings.HasPrefix(p, kernel+"/") {
			return Errorf(CodeInvalid, "is below %s, which is the kernel's", kernel)
		}
	}
	return nil
}

// VolumeEntry is a file or directory of a volume.
type VolumeEntry struct {
	Path   string    `json:"path" doc:"path in the volume, which begins with a slash"`
	Type   string    `json:"type" enum:"file,dir,symlink,fifo,socket,device" doc:"file, dir, symlink, fifo, socket or device"`
	Size   int64     `json:"size" doc:"bytes"`
	Mode   uint32    `json:"mode" doc:"permission bits"`
	UID    uint32    `json:"uid" doc:"number of the owner"`
	GID    uint32    `json:"gid" doc:"number of the group"`
	ATime  time.Time `json:"accessed_at" doc:"when the contents were read last"`
	MTime  time.Time `json:"modified_at" doc:"when the contents were changed last"`
	CTime  time.Time `json:"changed_at" doc:"when anything of it was changed last"`
	Target string    `json:"target,omitempty" doc:"of a symbolic link"`
}

// VolumeFileOptions say how a file or directory of a volume is made or changed; nil leaves what
// there is, or the defaults: owner 0, 0644 for files and 0755 for directories.
type VolumeFileOptions struct {
	UID, GID, Mode *uint32
	// Parents has directories above made that there are not.
	Parents bool
}
