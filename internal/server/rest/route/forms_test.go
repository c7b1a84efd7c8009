package route

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
)

// TestNetworkDocumentsFitTheirSchema holds documents against the schema and against package api,
// which must not disagree about forms.
func TestNetworkDocumentsFitTheirSchema(t *testing.T) {
	r := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	registerForms(r)
	schema := r.Schema(reflect.TypeFor[api.NetworkPolicy](), false, "")
	for text, want := range map[string]bool{
		`{}`: true,
		`{"default":"deny","allow":[],"deny":[],"limits":{}}`:                                                                               true,
		`{"allow":["a.example.org",{"address":"b.example.org","ports":[443,"8000-8099","*"],"private":true}],"deny":["udp:192.0.2.1:53"]}`:  true,
		`{"allow":[{"sandbox":"db"},{"sandbox":{"role":"store"}},{"profile":"git-hosts"}],"accept":[{"sandbox":"*"}]}`:                      true,
		`{"rules":{"a.example.org":{"secret":{"header":"X","value":"${K}"},"methods":["GET"],"hold":"writes"}},"limits":{"connections":1}}`: true,
		`{"allow":[443]}`: false,
		`{"allow":[{"address":"a.example.org","port":1}]}`:    false,
		`{"allow":[{"address":"a.example.org","ports":[0]}]}`: false,
		`{"allow":[{"sandbox":5}]}`:                           false,
		`{"default":"maybe"}`:                                 false,
		`{"limits":{"connections":-1}}`:                       false,
		`{"allowed":[]}`:                                      false,
	} {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		res := &huma.ValidateResult{}
		huma.Validate(r, schema, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, value, res)
		if got := len(res.Errors) == 0; got != want {
			t.Errorf("%s fits: %t, %v", text, got, res.Errors)
		}
		if _, err := api.DecodeNetworkPolicy([]byte(text)); (err == nil) != want {
			t.Errorf("%s: the schema and package api disagree: %v", text, err)
		}
	}
}
