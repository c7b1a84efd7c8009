package e2b

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
)

func (s *Server) routeSecrets() {
	v := vault{s.svc}
	s.route("POST /secrets", "set-secret", v.create)
	s.route("GET /secrets", "", v.list)
	s.route("GET /secrets/{id}", "", v.get)
	s.route("POST /secrets/{id}", "set-secret", v.update)
	s.route("DELETE /secrets/{id}", "remove-secret", v.remove)
}

// vault are the secrets of a tenant, as clients of E2B see them: one is put wherever the rules of a sandbox
// say. Its id is its name.
type vault struct{ svc service.Secrets }

// secret is one without its value.
type secret struct {
	SecretID       string            `json:"secretID"`
	Name           string            `json:"name"`
	CurrentVersion int               `json:"currentVersion"`
	Metadata       map[string]string `json:"metadata"`
	CreatedAt      time.Time         `json:"createdAt"`
	UpdatedAt      time.Time         `json:"updatedAt"`
}

func describeSecret(s *api.Secret) secret {
	d := secret{s.Name, s.Name, max(1, s.Version), s.Metadata, s.CreatedAt, s.UpdatedAt}
	if d.Metadata == nil {
		d.Metadata = map[string]string{}
	}
	return d
}

// newSecret is a request to make a secret or to give it another value.
type newSecret struct {
	Name     string            `json:"name"`
	Value    string            `json:"value"`
	Metadata map[string]string `json:"metadata"`
}

func (v vault) find(ctx context.Context, name string) (*api.Secret, error) {
	all, err := v.svc.Secrets(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(s api.Secret) bool { return s.Name == name })
	if i < 0 {
		return nil, api.NotFound("secret", name)
	}
	return &all[i], nil
}

// create makes a secret, if there is none of that name.
func (v vault) create(w http.ResponseWriter, r *http.Request) error {
	var in newSecret
	if err := read(r, &in); err != nil {
		return err
	}
	switch _, err := v.find(r.Context(), in.Name); {
	case err == nil:
		return api.Errorf(api.CodeConflict, "there is a secret %q already", in.Name)
	case api.CodeOf(err) != api.CodeNotFound:
		return err
	}
	made, err := v.svc.SetSecret(r.Context(), in.Name, api.SecretRequest{Value: in.Value, Metadata: in.Metadata, SecretBinding: api.SecretBinding{Names: []string{"*"}, Header: "*"}})
	if err != nil {
		return err
	}
	return reply(w, http.StatusCreated, describeSecret(made))
}

// update gives a secret another value. What else is known of it stays, unless the request says otherwise.
func (v vault) update(w http.ResponseWriter, r *http.Request) error {
	var in newSecret
	if err := read(r, &in); err != nil {
		return err
	}
	old, err := v.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if in.Metadata == nil {
		in.Metadata = old.Metadata
	}
	set, err := v.svc.SetSecret(r.Context(), old.Name, api.SecretRequest{Value: in.Value, Metadata: in.Metadata, SecretBinding: old.SecretBinding})
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, describeSecret(set))
}

func (v vault) get(w http.ResponseWriter, r *http.Request) error {
	s, err := v.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, describeSecret(s))
}

// list returns a page of secrets in the order of their names, which the next page begins after.
func (v vault) list(w http.ResponseWriter, r *http.Request) error {
	limit, err := limitOf(r.URL.Query())
	if err != nil {
		return err
	}
	all, err := v.svc.Secrets(r.Context())
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b api.Secret) int { return cmp.Compare(a.Name, b.Name) })
	if after := r.URL.Query().Get("nextToken"); after != "" {
		all = slices.DeleteFunc(all, func(s api.Secret) bool { return s.Name <= after })
	}
	if len(all) > limit {
		all = all[:limit]
		w.Header().Set("x-next-token", all[limit-1].Name)
	}
	out := []secret{}
	for i := range all {
		out = append(out, describeSecret(&all[i]))
	}
	return reply(w, http.StatusOK, out)
}

func (v vault) remove(w http.ResponseWriter, r *http.Request) error {
	if err := v.svc.RemoveSecret(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
