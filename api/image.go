package api

import (
	"time"
)

// Image is a read-only root file system.
type Image struct {
	ID    string   `json:"id" doc:"id of the image"`
	Names []string `json:"names" doc:"its names"`
	// Tenants are only in lists of all tenants' images.
	Tenants   map[string][]string `json:"tenants,omitempty" doc:"the names that other tenants have for it, in a list of all tenants' images"`
	Digest    string              `json:"digest" doc:"sha256 of the EROFS file"`
	SizeBytes int64               `json:"size_bytes" doc:"size of the file"`
	CreatedAt time.Time           `json:"created_at" doc:"when it was made"`
	Source    string              `json:"source,omitempty" doc:"its origin"`
	ImageConfig
}

// Pruned reports the unused things that were removed.
type Pruned struct {
	Removed    []string `json:"removed" nullable:"false" doc:"ids of images"`
	Packages   int      `json:"packages,omitempty" doc:"cached packages and lists of packages that were removed"`
	FreedBytes int64    `json:"freed_bytes" doc:"bytes of disk that are free again, of images and packages"`
}

// PruneRequest selects what is removed besides unused images.
type PruneRequest struct {
	Cache         bool  `json:"cache,omitempty" doc:"also the packages that builds have fetched and kept; only for operators"`
	CacheUnusedMS int64 `json:"cache_unused_ms,omitempty" minimum:"0" doc:"only cached packages that no build has used for this long; 0 is all"`
}

// ImageRequest asks for an image. Exactly one of Build, Path and Ref is set.
type ImageRequest struct {
	Name  string      `json:"name,omitempty" doc:"name to give the image; without one, an image of ref gets the reference without port, default registry and tag latest, and of a digest none"`
	Build *ImageBuild `json:"build,omitempty" doc:"make it from a distribution's packages"`
	Path  string      `json:"path,omitempty" doc:"absolute path on the daemon's host: directory, tar, docker-save or OCI archive, OCI layout"`
	// Select is for archives and layouts that hold several images.
	Select string `json:"select,omitempty" doc:"an image in the archive or layout at path, as name:tag, if it has several"`
	Ref    string `json:"ref,omitempty" doc:"reference in a registry"`
	// IfMissing is for images that many users need at the same time.
	IfMissing bool `json:"if_missing,omitempty" doc:"answer with the image that name, or else ref, means if it is there; of requests for the same image at the same time, one makes it and the others wait"`
}

// ImageBuild has the distribution and the packages of an image.
type ImageBuild struct {
	From    string   `json:"from" doc:"debian, or scratch for an image without files"`
	Suite   string   `json:"suite,omitempty" doc:"the host's own if absent"`
	Include []string `json:"include,omitempty" doc:"packages"`
}

// Progress is a state of long work.
type Progress struct {
	Phase  string `json:"phase" doc:"name of the phase"`
	Done   int64  `json:"done" doc:"amount of work that is done"`
	Total  int64  `json:"total" doc:"amount of work in all; 0 if unknown"`
	Detail string `json:"detail,omitempty" doc:"subject of the current work"`
}
