package session

import (
	"cmp"

	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// TenantView says whose things a command is about: the caller's tenant's, or those of
// all tenants.
type TenantView struct{ All bool }

func (v *TenantView) Flag(f *pflag.FlagSet) {
	f.BoolVarP(&v.All, "all-tenants", "A", false, "include all tenants, for the owner of the daemon")
}

func (v *TenantView) Options() []client.Option {
	if !v.All {
		return nil
	}
	return []client.Option{client.AllTenants}
}

// Row returns a row of a list, after the tenant if it is of all tenants.
func (v *TenantView) Row(tenant string, cells ...string) []string {
	if !v.All {
		return cells
	}
	return append([]string{tenant}, cells...)
}

func TenantName(recorded string) string { return cmp.Or(recorded, api.DefaultTenant) }

// Anywhere does something to the thing with the id ref, another tenant's included if
// the caller may.
func Anywhere(ref string, do func(...client.Option) error) error {
	err := do()
	if api.CodeOf(err) != api.CodeNotFound || !api.IsID(api.KindSandbox, ref) && !api.IsID(api.KindSnapshot, ref) {
		return err
	}
	if again := do(client.AllTenants); api.CodeOf(again) != api.CodeForbidden {
		return again
	}
	return err
}
