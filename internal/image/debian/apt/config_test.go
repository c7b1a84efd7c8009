package apt

import (
	"net/http"
	"testing"
)

func TestConfig(t *testing.T) {
	conf := Config{}
	conf.parse(`// comment
# another { "x"; }
/* and { one }; more */
Acquire::http::Proxy "http://all.example:3128/";
Acquire {
  Check-Valid-Until "False";
  http {
    Proxy { direct.example "DIRECT"; own.example "http://own.example:1"; };
    Timeout 30;
  };
  Languages { "none"; };
}
unfinished "quote`)
	if !conf.Disabled("Acquire::Check-Valid-Until") || conf.Disabled("Acquire::http::Timeout") || conf.Disabled("Unknown") {
		t.Errorf("settings are read wrong: %v", conf)
	}
	for addr, want := range map[string]string{
		"http://x.example/a":       "http://all.example:3128/",
		"https://x.example/a":      "http://all.example:3128/",
		"http://direct.example/a":  "",
		"https://own.example:81/a": "http://own.example:1",
	} {
		req, err := http.NewRequest(http.MethodGet, addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		u, err := conf.Proxy(req)
		got := ""
		if u != nil {
			got = u.String()
		}
		if err != nil || got != want {
			t.Errorf("proxy for %s is %q, %v, want %q", addr, got, err, want)
		}
	}
}
