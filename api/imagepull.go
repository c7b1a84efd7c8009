package api

import "strings"

// PullPolicy says whether a missing image is got before a sandbox is made of it.
type PullPolicy string

// The policies.
const (
	PullMissing PullPolicy = "missing" // if it is not there
	PullAlways  PullPolicy = "always"  // from its registry, also if it is there
	PullNever   PullPolicy = "never"
)

// PythonImage is the name of the image that is built where it is missing.
const PythonImage = "python"

// PythonBuild returns how PythonImage is built: with what most programs import, with pip and venv for the rest, and
// with git and curl.
func PythonBuild() *ImageBuild {
	return &ImageBuild{From: "debian", Include: []string{"python3", "python3-numpy", "python3-pip", "python3-venv", "git", "curl", "ca-certificates", "tzdata"}}
}

// Valid returns a CodeInvalid error that names field unless p is empty or a policy.
func (p PullPolicy) Valid(field string) error {
	switch p {
	case "", PullMissing, PullAlways, PullNever:
		return nil
	}
	return Invalid(field, "%q is not %s, %s or %s", string(p), PullMissing, PullAlways, PullNever)
}

// PullPolicy returns the policy of the request. By default only images are got whose reference
// has more than a name: a name is usually that of an image of this machine, or mistyped.
func (r *CreateRequest) PullPolicy() PullPolicy {
	switch {
	case r.Pull != "":
		return r.Pull
	case IsID(KindSnapshot, r.Image), IsID(KindImage, r.Image), strings.HasPrefix(r.Image, "sha256:"):
		return PullNever // an id, or a digest without a repository
	case r.Image == PythonImage, strings.ContainsAny(r.Image, "/:@"):
		return PullMissing
	}
	return PullNever
}

// ImageRequest returns the request for the image of r, by its policy, which is not PullNever.
func (r *CreateRequest) ImageRequest() ImageRequest {
	switch {
	case r.PullPolicy() == PullAlways:
		return ImageRequest{Ref: r.Image}
	case r.Image == PythonImage:
		return ImageRequest{Name: PythonImage, Build: PythonBuild(), IfMissing: true}
	}
	return ImageRequest{Ref: r.Image, IfMissing: true}
}
