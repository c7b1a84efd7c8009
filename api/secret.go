package api

import "time"

// SecretBinding says which requests a secret is put into.
type SecretBinding struct {
	Names   []string `json:"names" minItems:"1" maxItems:"64" doc:"names of servers, without wildcards; or * for all that a network document puts it into requests to"`
	Header  string   `json:"header" doc:"header that it is put into; or * for those of the network document"`
	Methods []string `json:"methods,omitempty" maxItems:"64" doc:"methods of requests; all if there are none"`
	Paths   []string `json:"paths,omitempty" maxItems:"64" doc:"paths of requests; a * at the end stands for any rest; all if there are none"`
	Plain   bool     `json:"plain,omitempty" doc:"also into requests without TLS"`
}

// Secret is a secret without its value, which nothing ever tells.
type Secret struct {
	Name string `json:"name" doc:"name of the secret"`
	SecretBinding
	Version   int               `json:"version" doc:"how many values it has had"`
	Metadata  map[string]string `json:"metadata,omitempty" doc:"what was said of it when it was set"`
	CreatedAt time.Time         `json:"created_at" doc:"when it was made"`
	UpdatedAt time.Time         `json:"updated_at" doc:"when it was replaced last"`
}

// SecretRequest makes a secret or replaces it.
type SecretRequest struct {
	Value string `json:"value" minLength:"1" maxLength:"8192" doc:"the secret itself"`
	SecretBinding
	Metadata map[string]string `json:"metadata,omitempty" doc:"keys and values to keep with it, which are not secret"`
}

// HeldState is where a held request stands.
type HeldState string

// The states. A request that is unknown may have been sent: the gateway ended in the middle.
const (
	HeldWaiting  HeldState = "waiting"
	HeldReleased HeldState = "released"
	HeldSending  HeldState = "sending"
	HeldSent     HeldState = "sent"
	HeldUnknown  HeldState = "unknown"
	HeldDropped  HeldState = "dropped"
	HeldExpired  HeldState = "expired"
)

// HeldRequest is a request of a sandbox that waits for a decision, or did.
type HeldRequest struct {
	ID      string    `json:"id" doc:"id of the request"`
	Sandbox string    `json:"sandbox" doc:"id of the sandbox"`
	Name    string    `json:"name" doc:"name of the server"`
	Port    uint16    `json:"port" doc:"port of the server"`
	TLS     bool      `json:"tls" doc:"the server is spoken to over TLS"`
	Method  string    `json:"method" doc:"method of the request"`
	Target  string    `json:"target" doc:"path of the request, with its query"`
	Size    int64     `json:"size" doc:"bytes of its body"`
	Digest  string    `json:"digest" doc:"SHA-256 of its body, in hexadecimal"`
	State   HeldState `json:"state" enum:"waiting,released,sending,sent,unknown,dropped,expired" doc:"where it stands; unknown: it may have been sent, and is only sent again if that is asked for"`
	Created time.Time `json:"created_at" doc:"when it came"`
	Changed time.Time `json:"changed_at" doc:"when its state changed last"`
	Status  int       `json:"status,omitempty" doc:"status of the answer, if it was sent"`
	Note    string    `json:"note,omitempty" doc:"why it was not sent, or is unknown"`
}

// HeldRelease asks to send held requests.
type HeldRelease struct {
	ID    string `json:"id,omitempty" doc:"id of one request; all that wait if absent"`
	Again bool   `json:"again,omitempty" doc:"with an id: send the request also if it may have been sent: the server may get it twice"`
}

// Valid returns a CodeInvalid error if several requests could be sent twice.
func (r *HeldRelease) Valid() error {
	if r.Again && r.ID == "" {
		return Invalid("again", "it is for one request at a time: say its id")
	}
	return nil
}

// HeldDrop asks never to send held requests.
type HeldDrop struct {
	ID string `json:"id,omitempty" doc:"id of one request; all that wait if absent"`
}
