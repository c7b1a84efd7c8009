package registries

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// mavenFiles are the settings of the user and of the installation.
var mavenFiles = []string{"~/.m2/settings.xml", "/etc/maven/settings.xml", "/usr/share/maven/conf/settings.xml", "/opt/maven/conf/settings.xml"}

// mavenSettings are the parts of settings.xml, and of a project, that name repositories.
type mavenSettings struct {
	Mirrors []struct {
		URL     string `xml:"url"`
		Of      string `xml:"mirrorOf"`
		Blocked bool   `xml:"blocked"`
	} `xml:"mirrors>mirror"`
	Profiles []mavenRepositories `xml:"profiles>profile"`
	mavenRepositories
	Proxies []struct {
		Host string `xml:"host"`
		Port string `xml:"port"`
	} `xml:"proxies>proxy"`
}

type mavenRepositories struct {
	Repositories []mavenRepository `xml:"repositories>repository"`
	Plugins      []mavenRepository `xml:"pluginRepositories>pluginRepository"`
}

type mavenRepository struct {
	URL string `xml:"url"`
}

var mavenVariable = regexp.MustCompile(`\$\{env\.([A-Za-z_][A-Za-z0-9_]*)\}`)

func parseMaven(text string) (*mavenSettings, error) {
	var s mavenSettings
	if strings.TrimSpace(text) == "" {
		return &s, nil
	}
	if err := xml.Unmarshal([]byte(text), &s); err != nil {
		return nil, errors.New("it is no XML of Maven")
	}
	return &s, nil
}

// mavenConfigured reads mirrors and repositories of the settings.
func mavenConfigured(c *collector) {
	for _, file := range mavenFiles {
		s, err := parseMaven(c.read(file))
		if err != nil {
			c.problem(file, "%v", err)
			continue
		}
		for _, m := range s.Mirrors {
			if m.Blocked {
				continue // Maven's own settings have one that nothing is fetched from
			}
			found := c.extra(file, c.mavenAddress(m.URL))
			c.replaced = c.replaced || found && strings.Contains(m.Of, "*") || found && strings.Contains(m.Of, "central")
		}
		for _, r := range append(s.Profiles, s.mavenRepositories) {
			c.mavenRepositories(file, r)
		}
		for _, p := range s.Proxies {
			c.proxy(file, p.Host+":"+p.Port)
		}
	}
}

func (c *collector) mavenRepositories(from string, r mavenRepositories) {
	for _, list := range [][]mavenRepository{r.Repositories, r.Plugins} {
		for _, repository := range list {
			c.extra(from, c.mavenAddress(repository.URL))
		}
	}
}

// mavenAddress replaces references to the environment.
func (c *collector) mavenAddress(s string) string {
	return mavenVariable.ReplaceAllStringFunc(strings.TrimSpace(s), func(ref string) string {
		return c.Env[mavenVariable.FindStringSubmatch(ref)[1]]
	})
}

// mavenJars have the project that all others descend from, with the default repository.
var mavenJars = []string{"usr/share/maven*/lib/maven-model-builder*.jar", "opt/*/lib/maven-model-builder*.jar"}

const (
	superProject = "org/apache/maven/model/pom-4.0.0.xml"
	maxJar       = 16 << 20
)

// mavenDefault reads the repository that projects have without settings.
func mavenDefault(_ context.Context, c *collector) {
	for _, pattern := range mavenJars {
		for _, file := range c.glob(pattern) {
			s, err := c.superProject(file)
			if err != nil {
				c.problem("/"+file, "%v", err)
				continue
			}
			c.mavenRepositories("/"+path.Clean(file), s.mavenRepositories)
			return
		}
	}
}

func (c *collector) superProject(file string) (*mavenSettings, error) {
	info, err := fs.Stat(c.Files, file)
	if err != nil || !info.Mode().IsRegular() {
		return &mavenSettings{}, err
	}
	data, err := readUpTo(c.Files, file, maxJar)
	if err != nil {
		return nil, err
	}
	return readSuperProject(data)
}

func readSuperProject(jar []byte) (*mavenSettings, error) {
	z, err := zip.NewReader(bytes.NewReader(jar), int64(len(jar)))
	if err != nil {
		return nil, errors.New("it is no archive")
	}
	in, err := z.Open(superProject)
	if err != nil {
		return nil, errors.New("it has no project that others descend from")
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxFile))
	if err != nil {
		return nil, errors.New("its project cannot be read")
	}
	return parseMaven(string(text))
}
