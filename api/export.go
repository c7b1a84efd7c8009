package api

// ExportFormat is the format of an export.
type ExportFormat string

// The formats of an export.
const (
	ExportLayer ExportFormat = "layer" // tar of the differences from the image, as a layer on top of it
	ExportOCI   ExportFormat = "oci"   // archive of an OCI image layout: the image and the layer
	ExportTar   ExportFormat = "tar"   // tar of all files
)

// ExportRequest selects the form of an export.
type ExportRequest struct {
	Format ExportFormat
	Gzip   bool // compress the result; of an OCI archive, its layers
}

// CommitRequest asks for an image of a sandbox's or snapshot's files.
type CommitRequest struct {
	Name    string `json:"name" doc:"name to give the image"`
	Message string `json:"message,omitempty" maxLength:"1000" doc:"description of the image, for people"`
	Replace bool   `json:"replace,omitempty" doc:"take the name from the image that has it; without replace, a taken name is a conflict"`
	// Config is nil for the configuration of the image that the sandbox was made of.
	Config *ImageConfig `json:"config,omitempty" doc:"configuration of the image; if absent, that of the image of the sandbox"`
}

// Valid returns a CodeInvalid error unless r has the form of a request.
func (r *CommitRequest) Valid() error {
	if err := ValidImageRef("name", r.Name); err != nil {
		return err
	}
	if r.Config == nil {
		return nil
	}
	return r.Config.Valid("config")
}
