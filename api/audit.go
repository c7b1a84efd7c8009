package api

import "time"

// AuditEntry is one line of the audit: who did what to what, and what came of it.
// What was in the request is no part of it.
type AuditEntry struct {
	Seq    int64     `json:"seq" doc:"number of the line"`
	Prev   string    `json:"prev" doc:"sha256 of the line before; empty in the first one"`
	Time   time.Time `json:"time" doc:"when it was over"`
	Tenant string    `json:"tenant,omitempty" doc:"tenant of the caller"`
	// Exactly one of the next three says who it was, but for the daemon itself.
	UID     *uint32       `json:"uid,omitempty" doc:"user id of the owner of the daemon, or root"`
	Token   string        `json:"token,omitempty" doc:"id of the token"`
	By      string        `json:"by,omitempty" doc:"sandbox that did it by itself"`
	Request string        `json:"request,omitempty" doc:"id of the request"`
	Action  string        `json:"action" doc:"operation of the REST interface; self- before it if a sandbox did it by itself"`
	Object  string        `json:"object,omitempty" doc:"id of what it was done to, or the name that was not found"`
	Of      string        `json:"of,omitempty" doc:"tenant whose thing it was done to, if that is not the tenant who did it"`
	Result  string        `json:"result" doc:"ok, or the code of the error"`
	Details *AuditDetails `json:"details,omitempty" doc:"what came of it"`
}

// AuditDetails is what came of a change.
type AuditDetails struct {
	Parent    string   `json:"parent,omitempty" doc:"sandbox that was forked, that was promoted to, or that the restored snapshot is of"`
	Children  []string `json:"children,omitempty" doc:"sandboxes that were made"`
	Failed    int      `json:"failed,omitempty" doc:"children that could not be made"`
	Freeze    string   `json:"freeze,omitempty" doc:"frozen state that children were made from"`
	Snapshot  string   `json:"snapshot,omitempty" doc:"id of a snapshot that was made"`
	Digest    string   `json:"digest,omitempty" doc:"sha256 of a snapshot's state, or of the list of changes or decisions that was answered"`
	Token     string   `json:"token,omitempty" doc:"id of a token that was made or changed"`
	Image     string   `json:"image,omitempty" doc:"id of an image, which is made of its digest"`
	From      []string `json:"from,omitempty" doc:"what was merged, or compared with"`
	Base      string   `json:"base,omitempty" doc:"common ancestor"`
	Strategy  string   `json:"strategy,omitempty" doc:"how conflicts of a merge were treated"`
	DryRun    bool     `json:"dry_run,omitempty" doc:"the merge changed nothing"`
	Changes   int      `json:"changes,omitempty" doc:"paths that differ, or were changed"`
	Conflicts int      `json:"conflicts,omitempty" doc:"conflicts of a merge"`
	// Missing is only in lines of the daemon itself.
	Missing string `json:"missing,omitempty" doc:"number and digest of the line that was the last one, and is gone"`
	Torn    int64  `json:"torn,omitempty" doc:"bytes of an unfinished line that were removed"`
}

// AuditReport is what came of a verification.
type AuditReport struct {
	OK      bool         `json:"ok" doc:"nothing is wrong"`
	Files   int          `json:"files" doc:"files that were read"`
	Entries int64        `json:"entries" doc:"lines that were read"`
	First   int64        `json:"first" doc:"number of the first line that is there; above 1 if older files were put aside"`
	Head    string       `json:"head" doc:"number and digest of the last line, to be kept elsewhere and given to a later verification"`
	Faults  []AuditFault `json:"faults" doc:"what is wrong" nullable:"false"`
}

// AuditFault is one thing that is wrong with the audit.
type AuditFault struct {
	File   string `json:"file" doc:"file name"`
	Line   int    `json:"line,omitempty" doc:"line of the file"`
	Seq    int64  `json:"seq,omitempty" doc:"number of the entry"`
	Detail string `json:"detail" doc:"what is wrong"`
}
