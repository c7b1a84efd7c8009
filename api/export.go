package api

// ExportFormat is a form in which the files of a sandbox can be had.
type ExportFormat string

// The formats of an export.
const (
	ExportLayer ExportFormat = "layer" // tar of what differs from the image, as a layer on top of it
	ExportOCI   ExportFormat = "oci"   // archive of an OCI image layout: the image and the layer
	ExportTar   ExportFormat = "tar"   // tar of all files
)

// ExportRequest says how the files of a sandbox or snapshot are wanted.
type ExportRequest struct {
	Format ExportFormat
	Gzip   bool // compressed; of an archive, its layers
}

// CommitRequest asks for an image of a sandbox's or snapshot's files.
type CommitRequest struct {
	Name    string `json:"name" doc:"name to give the image"`
	Message string `json:"message,omitempty" maxLength:"1000" doc:"what the image is, for people"`
	Replace bool   `json:"replace,omitempty" doc:"take the name from the image that has it; without it a name that an image has is a conflict"`
}
