package session

import (
	"cmp"

	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// TenantView is the option that extends a list from the caller's tenant to all tenants.
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

// Row returns a row of a list. If the list has all tenants, the tenant comes first.
func (v *TenantView) Row(tenant string, cells ...string) []string {
	if !v.All {
		return cells
	}
	return append([]string{tenant}, cells...)
}

// TenantName returns the name of a recorded tenant, which is empty for the default tenant.
func TenantName(recorded string) string { return cmp.Or(recorded, api.DefaultTenant) }

// AcrossTenants calls do for an object of the caller's tenant, and again for all tenants if it is not
// there, ref is an id, and the caller may see other tenants.
func AcrossTenants(ref string, do func(...client.Option) error) error {
	err := do()
	if api.CodeOf(err) != api.CodeNotFound || !api.IsID(api.KindSandbox, ref) && !api.IsID(api.KindSnapshot, ref) {
		return err
	}
	if again := do(client.AllTenants); api.CodeOf(again) != api.CodeForbidden {
		return again
	}
	return err
}
