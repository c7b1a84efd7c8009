package dockerfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// digest is a selection of files for tests.
type digest string

func (d digest) Digest() string { return string(d) }

// options has images whose names are their ids, and a context whose files are their names.
func options() Options {
	return Options{
		Image: func(ref string) (*api.Image, error) {
			if ref == "missing" {
				return nil, api.NotFound("image", ref)
			}
			return &api.Image{ID: "img_" + ref, ImageConfig: api.ImageConfig{Env: []string{"PATH=/bin", "BASE=1"}, Cmd: []string{"base"}, User: "daemon"}}, nil
		},
		Context: func(s Sources) (Files, error) { return digest(strings.Join(s.Patterns, " ")), nil },
	}
}

func plan(t *testing.T, text string, opt Options) *Plan {
	t.Helper()
	f, err := Parse("Dockerfile", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Plan(opt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPlan(t *testing.T) {
	opt := options()
	opt.Args = map[string]string{"VERSION": "2", "OTHER": "x", "HTTP_PROXY": "http://proxy"}
	p := plan(t, `# syntax=docker/dockerfile:1
ARG TAG=one
ARG VERSION=1
FROM base:$TAG AS first
ARG VERSION
ARG MORE=${VERSION}0
ENV A=$MORE B="x y"
WORKDIR /srv
WORKDIR app
RUN make $A
COPY --chown=a:b --chmod=755 src/ ./
FROM unneeded
RUN never
FROM first
USER root
COPY --from=first /srv/app/* /out/
COPY --from=other:1 /bin/tool /bin/
SHELL ["/bin/bash", "-c"]
ENTRYPOINT run it
EXPOSE 80 53/udp 8000-8001
LABEL a=b
VOLUME /data
STOPSIGNAL SIGINT
HEALTHCHECK --interval=1s --retries=2 CMD check
`, opt)
	if !slices.Equal(p.Unused, []string{"OTHER"}) {
		t.Errorf("unused are %v", p.Unused)
	}
	var names []string
	for _, s := range p.Stages {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, []string{"first", "other:1", "stage-2"}) {
		t.Fatalf("stages are %v", names)
	}
	first, last := p.Stages[0], p.Target()
	if first.Image.ID != "img_base:one" || len(first.Steps) != 4 || first.Steps[1].Dir.Path != "/srv/app" || first.Steps[1].Dir.User != "daemon" {
		t.Errorf("first stage %+v", first)
	}
	run := first.Steps[2].Run
	if !slices.Equal(run.Argv, []string{"/bin/sh", "-c", "make $A"}) || run.Cwd != "/srv/app" || run.User != "daemon" {
		t.Errorf("run %+v", run)
	}
	for name, want := range map[string]string{"A": "20", "B": "x y", "VERSION": "2", "MORE": "20", "PATH": "/bin", "BASE": "1", "HTTP_PROXY": "http://proxy"} {
		if run.Env[name] != want {
			t.Errorf("%s is %q, not %q", name, run.Env[name], want)
		}
	}
	copied := first.Steps[3].Copy
	if copied.Dest != "/srv/app" || !copied.DestDir || copied.Owner != "a:b" || *copied.Mode != 0o755 || copied.Files.Digest() != "src" {
		t.Errorf("copy %+v", copied)
	}
	if last.Base != first || len(last.Steps) != 2 || last.Steps[0].Copy.From != first || last.Steps[1].Copy.From != p.Stages[1] || last.Steps[0].Copy.Patterns[0] != "/srv/app/*" {
		t.Errorf("last stage %+v", last)
	}
	c := last.Config
	if got := fmt.Sprint(c.Env, c.Cmd, c.Entry, c.Cwd, c.User, c.Ports, c.Labels, c.VolumePaths, c.StopSignal, *c.Healthcheck); got !=
		"[PATH=/bin BASE=1 A=20 B=x y] [] [/bin/bash -c run it]/srv/approot[53/udp 80/tcp 8000/tcp 8001/tcp] map[a:b] [/data]SIGINT{[CMD-SHELL check] 1000 0 0 2}" {
		t.Errorf("config %s", got)
	}
}

// TestPath adds to the PATH of an image that has none.
func TestPath(t *testing.T) {
	opt := options()
	opt.Image = func(string) (*api.Image, error) { return &api.Image{ID: "img_a"}, nil }
	p := plan(t, "FROM a\nENV PATH=/opt/bin:$PATH\nRUN x\n", opt)
	if got := p.Target().Steps[0].Run.Env["PATH"]; got != "/opt/bin:"+defaultPath || p.Target().Config.Env[0] != "PATH="+got {
		t.Errorf("PATH is %s, and in the image %v", got, p.Target().Config.Env)
	}
}

func TestHereDocuments(t *testing.T) {
	p := plan(t, `FROM base
RUN <<EOF
one
two
EOF
RUN <<EOF
#!/usr/bin/env python3
print(1)
EOF
RUN cat <<A - <<B
a
A
b
B
COPY <<conf /etc/
x=$BASE
conf
`, options())
	s := p.Target().Steps
	if got := s[0].Run.Argv[2]; got != "one\ntwo\n" {
		t.Errorf("a document for the shell: %q", got)
	}
	if r := s[1].Run; r.Script != "#!/usr/bin/env python3\nprint(1)\n" || !slices.Equal(r.Argv, []string{ScriptPath}) {
		t.Errorf("a script: %+v", r)
	}
	if got := s[2].Run.Argv[2]; got != "cat <<A - <<B\na\nA\nb\nB" {
		t.Errorf("two documents: %q", got)
	}
	if c := s[3].Copy; len(c.Inline) != 1 || c.Inline[0] != (Inline{"conf", "x=1\n"}) || c.Dest != "/etc" || !c.DestDir {
		t.Errorf("an inline file: %+v", c)
	}
}

// TestKeys changes one thing at a time: the keys of the steps from there on differ, and those before do not.
func TestKeys(t *testing.T) {
	const text = "FROM base\nARG V=1\nRUN one\nCOPY a /\nENV X=1\nUSER u\nRUN two\n"
	keys := func(text string, opt Options) (keys []string) {
		for _, s := range plan(t, text, opt).Target().Steps {
			keys = append(keys, s.Key)
		}
		return keys
	}
	before := keys(text, options())
	if again := keys(text, options()); !slices.Equal(before, again) {
		t.Fatal("the same file has other keys")
	}
	changed := options()
	changed.Context = func(Sources) (Files, error) { return digest("changed"), nil }
	arg := options()
	arg.Args = map[string]string{"V": "2"}
	proxy := options()
	proxy.Args = map[string]string{"http_proxy": "x"}
	closed := options()
	closed.NoNet = true
	for name, c := range map[string]struct {
		text string
		opt  Options
		same int // steps
	}{
		"base": {strings.Replace(text, "base", "other", 1), options(), 0}, "run": {strings.Replace(text, "two", "three", 1), options(), 2},
		"files": {text, changed, 1}, "argument": {text, arg, 0}, "env": {strings.Replace(text, "X=1", "X=2", 1), options(), 2},
		"user": {strings.Replace(text, "USER u", "USER v", 1), options(), 2}, "proxy": {text, proxy, 3}, "network": {text, closed, 0},
		"comment": {"# x\n" + text, options(), 3}, "owner": {strings.Replace(text, "COPY a", "COPY --chown=1 a", 1), options(), 1},
	} {
		got := keys(c.text, c.opt)
		for i := range got {
			if (got[i] == before[i]) != (i < c.same) {
				t.Errorf("%s: step %d has the same key: %v", name, i, got[i] == before[i])
			}
		}
	}
	if a, b := plan(t, text, options()).Target(), plan(t, text+"CMD x\n", options()).Target(); a.Key() != b.Key() || a.ResultKey() == b.ResultKey() {
		t.Error("CMD changes the configuration alone")
	}
}

// TestRefused has files that are refused with their line before anything is asked for.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "Dockerfile:1: ",
		"RUN x\n":                           "Dockerfile:1: RUN before FROM",
		"FROM a\nNOPE x\n":                  "Dockerfile:2: unknown instruction: NOPE",
		"FROM a\n\nONBUILD RUN x\n":         "Dockerfile:3: ONBUILD is not supported",
		"FROM a\nADD https://x.org/y /\n":   "Dockerfile:2: ADD of \"https://x.org/y\" is not supported",
		"FROM a\nADD git@x.org:y.git /\n":   "Dockerfile:2: ADD of ",
		"FROM a\nRUN --network=host x\n":    "Dockerfile:2: RUN --network=host is not supported",
		"FROM a\nRUN --mount=type=ssh x\n":  "Dockerfile:2: RUN --mount",
		"FROM --platform=linux/riscv64 a\n": "Dockerfile:1: FROM --platform=linux/riscv64 is not supported",
		"ARG X\nFROM $X\n":                  "Dockerfile:2: FROM $X is empty",
		"FROM a\nCOPY x y /z\n":             "Dockerfile:2: COPY of several sources",
		"FROM a\nCOPY --from=../x a /\n":    "Dockerfile:2: COPY --from=../x is no stage above and no image",
		"FROM a AS b\nCOPY --from=b x /\n":  "Dockerfile:2: COPY --from=b is the stage itself",
		"FROM a\nCOPY --chmod=+x a /\n":     "Dockerfile:2: --chmod=+x is not supported",
		"FROM a\nEXPOSE x\n":                "Dockerfile:2: EXPOSE x is no port",
		"FROM a\nENV A=0123456789abcdef\n" + strings.Repeat("ENV A=$A$A\n", 20):                         "Dockerfile:13: A has 32768 bytes",
		"FROM a\nARG A=" + strings.Repeat("x", 9000) + "\nLABEL b=" + strings.Repeat("$A", 2000) + "\n": "Dockerfile:3: the variables of ",
		"FROM a\nEXPOSE 1-65535 1-65535/udp 1-9/sctp\n":                                                 "Dockerfile:2: EXPOSE has more than",
		"FROM a\nENV A=${B:?no B}\nRUN x\n":                                                             "Dockerfile:2: ",
		"FROM missing\nRUN x\n":                                                                         "Dockerfile:1: FROM missing: no image",
		"FROM a\nCOPY [ /x\n":                                                                           "Dockerfile:2: \"[\" is not a pattern",
	} {
		f, err := Parse("Dockerfile", []byte(text))
		if err == nil {
			_, err = f.Plan(options())
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if code := api.CodeOf(err); code == api.CodeInternal {
			t.Errorf("%q: code %s", text, code)
		}
	}
	f, err := Parse("Dockerfile", []byte("FROM a\nONBUILD RUN x\nFROM b AS c\nRUN y\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Plan(options()); err != nil {
		t.Errorf("an unneeded stage: %v", err)
	}
	opt := options()
	opt.Target = "none"
	if f, _ = Parse("D", []byte("FROM a AS c\n")); f != nil {
		_, err = f.Plan(opt)
	}
	if err == nil || !strings.Contains(err.Error(), `no stage "none": it has c`) {
		t.Errorf("an unknown target: %v", err)
	}
	opt = options()
	opt.Image = func(string) (*api.Image, error) { return nil, errors.New("asked for") }
	f, _ = Parse("D", []byte("FROM a\nRUN x\nFROM b\nCOPY --from=0 x /\nRUN --network=host y\n"))
	if _, err := f.Plan(opt); err == nil || strings.Contains(err.Error(), "asked for") {
		t.Errorf("an image was asked for before all lines were looked at: %v", err)
	}
}

func FuzzPlan(f *testing.F) {
	f.Add("FROM a AS b\nARG X=1\nENV Y=${X:-2}\nCOPY --from=b x* /y\nRUN <<E\nx\nE\n")
	f.Add("FROM scratch\nADD [\"a\", \"b\"]\nEXPOSE 1-3\nHEALTHCHECK NONE\n")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("D", []byte(text))
		if err != nil {
			return
		}
		if p, err := file.Plan(options()); err == nil {
			p.Target().ResultKey()
		}
	})
}

func TestMounts(t *testing.T) {
	opt := options()
	opt.Secrets = map[string]bool{"token": true}
	const text = `FROM base AS first
FROM base
WORKDIR /srv
ARG ID=c
RUN --mount=type=secret,id=token,required --mount=type=secret,id=b,env=B --mount=type=secret,target=/etc/key,mode=0440,uid=3 one
RUN --mount=type=cache,target=/root/.cache --mount=type=cache,id=$ID,target=x,sharing=locked two
RUN --mount=source=src,target=. --mount=type=bind,from=first,source=/etc,target=/conf --mount=type=tmpfs,target=/t three
`
	steps := plan(t, text, opt).Target().Steps[1:]
	one, two, three := steps[0].Run, steps[1].Run, steps[2].Run
	want := []Mount{
		{Kind: MountSecret, ID: "token", Target: "/run/secrets/token", Mode: 0o400, ReadOnly: true}, {Kind: MountSecret, ID: "b", Env: "B", Mode: 0o400, ReadOnly: true},
		{Kind: MountSecret, ID: "key", Target: "/etc/key", Mode: 0o440, UID: 3, ReadOnly: true},
	}
	if !slices.Equal(one.Mounts, want) || !one.Apart() {
		t.Errorf("secrets %+v", one.Mounts)
	}
	if !slices.Equal(two.Mounts, []Mount{{Kind: MountCache, ID: "/root/.cache", Target: "/root/.cache"}, {Kind: MountCache, ID: "c", Target: "/srv/x"}}) || !two.Apart() {
		t.Errorf("caches %+v", two.Mounts)
	}
	m := three.Mounts
	if len(m) != 3 || m[0].Copy.Files.Digest() != "src" || m[0].Copy.Dest != "/srv" || m[1].Copy.From.Name != "first" || m[1].Copy.Patterns[0] != "/etc" || m[2].Kind != MountTmpfs || three.Apart() {
		t.Errorf("binds %+v", m)
	}
	changed := opt
	changed.Context = func(Sources) (Files, error) { return digest("changed"), nil }
	other := plan(t, text, changed).Target().Steps[1:]
	if other[1].Key != steps[1].Key || other[2].Key == steps[2].Key {
		t.Error("bound files decide the key of their step")
	}
	for text, want := range map[string]string{
		"type=ssh": "type=ssh is not supported", "type=cache,target=/x,uid=1000": "caches belong to root", "type=secret,id=x,required=true": `needs the secret "x"`,
		"type=bind,from=../x,target=/x": "no stage above", "type=tmpfs": "needs a target", "type=cache,target=/": "needs a target", "type=cache,target=/x,sharing=some": "unsupported sharing",
	} {
		f, err := Parse("D", []byte("FROM a\nRUN --mount="+text+" x\n"))
		if err == nil {
			_, err = f.Plan(options())
		}
		if err == nil || !strings.HasPrefix(err.Error(), "D:2: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
