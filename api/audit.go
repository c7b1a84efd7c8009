package api

import "time"

// AuditEntry is a line of the audit log: a caller, an action, the thing that it is about and
// the result. It has no contents of requests.
type AuditEntry struct {
	Seq    int64     `json:"seq" doc:"number of the line"`
	Prev   string    `json:"prev" doc:"sha256 of the line before; empty in the first line"`
	Time   time.Time `json:"time" doc:"when the action had ended"`
	Tenant string    `json:"tenant,omitempty" doc:"tenant of the caller"`
	// Exactly one of the next three names the caller. The daemon itself has none of them.
	UID     *uint32       `json:"uid,omitempty" doc:"user id of the owner of the daemon, or root"`
	Token   string        `json:"token,omitempty" doc:"id of the token"`
	By      string        `json:"by,omitempty" doc:"sandbox that did it by self-control"`
	Request string        `json:"request,omitempty" doc:"id of the request"`
	Action  string        `json:"action" doc:"operation of the REST interface, with self- before it if a sandbox did it by self-control"`
	Object  string        `json:"object,omitempty" doc:"id of the thing that the action is about, or the name that was not found"`
	Of      string        `json:"of,omitempty" doc:"tenant of that thing, if it is another tenant than the caller's"`
	Result  string        `json:"result" doc:"ok, or the code of the error"`
	Details *AuditDetails `json:"details,omitempty" doc:"details of the result"`
}

// AuditDetails has details of the result of an action.
type AuditDetails struct {
	Parent    string   `json:"parent,omitempty" doc:"sandbox that was forked, that got the state of a promoted child, or whose snapshot was restored"`
	Children  []string `json:"children,omitempty" doc:"sandboxes that were made"`
	Failed    int      `json:"failed,omitempty" doc:"children that could not be made"`
	Freeze    string   `json:"freeze,omitempty" doc:"frozen state that children were made from"`
	Snapshot  string   `json:"snapshot,omitempty" doc:"id of a snapshot that was made"`
	Digest    string   `json:"digest,omitempty" doc:"sha256 of a snapshot's state, or of the list of changes or decisions that was answered"`
	Token     string   `json:"token,omitempty" doc:"id of a token that was made or changed"`
	Image     string   `json:"image,omitempty" doc:"id of an image, which is derived from its digest"`
	From      []string `json:"from,omitempty" doc:"sandboxes and snapshots that were merged, or compared with"`
	Base      string   `json:"base,omitempty" doc:"common ancestor"`
	Strategy  string   `json:"strategy,omitempty" doc:"how conflicts of a merge were treated"`
	DryRun    bool     `json:"dry_run,omitempty" doc:"the merge changed nothing"`
	Changes   int      `json:"changes,omitempty" doc:"paths that differ, or were changed"`
	Conflicts int      `json:"conflicts,omitempty" doc:"conflicts of a merge"`
	Port      int      `json:"port,omitempty" doc:"port of a sandbox that was published, or whose publication ended"`
	Listen    string   `json:"listen,omitempty" doc:"address and port of the host that the port is published at"`
	Refused   int      `json:"refused,omitempty" doc:"refuse-port: requests without the token since the last such line about the port"`
	// Missing is only in lines of the daemon itself.
	Missing string `json:"missing,omitempty" doc:"number and digest of the former last line, which is gone"`
	Torn    int64  `json:"torn,omitempty" doc:"bytes of an unfinished line that were removed"`
}

// AuditReport is the result of a verification.
type AuditReport struct {
	OK      bool         `json:"ok" doc:"there are no faults"`
	Files   int          `json:"files" doc:"files that were read"`
	Entries int64        `json:"entries" doc:"lines that were read"`
	First   int64        `json:"first" doc:"number of the first line that exists; above 1 if older files were put aside"`
	Head    string       `json:"head" doc:"number and digest of the last line, to be kept elsewhere and given to a later verification"`
	Faults  []AuditFault `json:"faults" doc:"the faults" nullable:"false"`
}

// AuditFault is a fault of the audit log.
type AuditFault struct {
	File   string `json:"file" doc:"file name"`
	Line   int    `json:"line,omitempty" doc:"line of the file"`
	Seq    int64  `json:"seq,omitempty" doc:"number of the entry"`
	Detail string `json:"detail" doc:"the faults"`
}
