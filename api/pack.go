package api

import "time"

// SnapshotOrigin is where a snapshot came from that another machine has made.
type SnapshotOrigin struct {
	Digest    string    `json:"digest" doc:"digest of the manifest of the packed snapshot, which stands for all of it"`
	Snapshot  string    `json:"snapshot" doc:"id of the snapshot on the machine that made it"`
	CreatedAt time.Time `json:"created_at" doc:"when it was made there"`
}

// PackRequest says how a snapshot is packed.
type PackRequest struct {
	// WithoutImage leaves the image out: the snapshot can only be unpacked where the image is.
	WithoutImage bool
	WithEngine   bool // with the program that loads the state
	Sign         bool // with the key of the tenant
}

// UnpackRequest says how a packed snapshot is unpacked.
type UnpackRequest struct {
	Name  string   // of the snapshot; its own if empty
	Trust []string // keys one of which must have signed it, if there are any
}

// SigningKey is the key by which a tenant signs snapshots that leave the machine.
type SigningKey struct {
	Key string `json:"key" doc:"public key"`
}

// PackContents lists what a packed snapshot contains.
type PackContents struct {
	Snapshot     string         `json:"snapshot" doc:"id of the snapshot"`
	Image        string         `json:"image" doc:"image id"`
	Engine       string         `json:"engine" doc:"engine version that can restore it"`
	Architecture string         `json:"architecture" doc:"architecture of the processors that can restore it"`
	Parts        []PackPart     `json:"parts" doc:"contents, before compression"`
	Env          []string       `json:"env,omitempty" doc:"names of the variables that are packed with their values"`
	Secrets      []string       `json:"secrets,omitempty" doc:"names of the secrets that its network inserts; values are never packed"`
	Network      *NetworkPolicy `json:"network,omitempty" doc:"network document that is packed; absent if it has no network"`
	LeftOut      []string       `json:"left_out,omitempty" doc:"properties of the sandbox that are not packed"`
}

// PackPart is a part of a packed snapshot.
type PackPart struct {
	Kind      string `json:"kind" enum:"state,memory,files,image" doc:"contents: the kernel's state, memory of processes, files that differ from the image, or the image"`
	Snapshot  string `json:"snapshot,omitempty" doc:"snapshot that the pages were written for: all pages of that part are packed"`
	Digest    string `json:"digest" doc:"digest of the contents"`
	SizeBytes int64  `json:"size_bytes" doc:"bytes before compression, without holes"`
}

// PushRequest asks for a snapshot to be sent to a registry.
type PushRequest struct {
	Ref          string `json:"ref" minLength:"1" doc:"reference to give it, such as registry.example.org/team/warm:v1"`
	WithoutImage bool   `json:"without_image,omitempty" doc:"leave the image out: it must be where the snapshot is pulled"`
	WithEngine   bool   `json:"with_engine,omitempty" doc:"with the program that loads the state, for machines with another version of Ramet"`
	Sign         bool   `json:"sign,omitempty" doc:"sign it with the key of the tenant"`
}

// PushResult describes a snapshot that was sent.
type PushResult struct {
	Snapshot  string `json:"snapshot" doc:"id of the snapshot"`
	Ref       string `json:"ref" doc:"reference in full, with its registry and tag"`
	Digest    string `json:"digest" doc:"digest of the manifest, which stands for all of the snapshot"`
	SizeBytes int64  `json:"size_bytes" doc:"bytes of all blobs, compressed"`
	SentBytes int64  `json:"sent_bytes" doc:"bytes of the blobs that the registry did not have"`
}

// PullRequest asks for a snapshot that is in a registry.
type PullRequest struct {
	Ref   string   `json:"ref" minLength:"1" doc:"reference of the snapshot"`
	Name  string   `json:"name,omitempty" minLength:"1" doc:"name of the snapshot, unique among those of the tenant; if absent, the name that it was packed with"`
	Trust []string `json:"trust,omitempty" maxItems:"64" doc:"public keys, one of which must have signed the snapshot; none for any snapshot"`
}
