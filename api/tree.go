package api

import "time"

// TreeNode is one sandbox or snapshot in the lineage.
type TreeNode struct {
	ID        string      `json:"id" doc:"id of the sandbox or snapshot"`
	Tenant    string      `json:"tenant,omitempty" doc:"whose it is; absent for the default tenant"`
	Name      string      `json:"name,omitempty" doc:"name, if it has one"`
	Label     string      `json:"label,omitempty" doc:"of a snapshot that a sandbox took by itself: what that calls it"`
	Kind      string      `json:"kind" enum:"sandbox,snapshot" doc:"sandbox or snapshot"`
	State     string      `json:"state" enum:"creating,running,paused,hibernated,failed,destroyed,uploading,ready,deleted" doc:"where it is in its life; destroyed for what only descendants are left of"`
	CreatedAt time.Time   `json:"created_at,omitzero" doc:"absent of what is destroyed"`
	Children  []*TreeNode `json:"children,omitempty" doc:"what came from it"`
}
