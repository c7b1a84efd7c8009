package api

import "time"

// TreeNode is a sandbox or snapshot in the lineage.
type TreeNode struct {
	ID        string      `json:"id" doc:"id of the sandbox or snapshot"`
	Tenant    string      `json:"tenant,omitempty" doc:"tenant that owns it; absent for the default tenant"`
	Name      string      `json:"name,omitempty" doc:"name, if it has one"`
	Label     string      `json:"label,omitempty" doc:"name that a sandbox gave a snapshot which it took by self-control"`
	Kind      string      `json:"kind" enum:"sandbox,snapshot" doc:"sandbox or snapshot"`
	State     string      `json:"state" enum:"creating,running,paused,hibernated,failed,destroyed,uploading,ready,deleted" doc:"state; destroyed if only its descendants are left"`
	CreatedAt time.Time   `json:"created_at,omitzero" doc:"when it was made; absent if it is destroyed"`
	Children  []*TreeNode `json:"children,omitempty" doc:"its children"`
}
