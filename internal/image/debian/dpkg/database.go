package dpkg

import (
	"bytes"
	"fmt"
	"sort"
	"strings"

	"ramet.dev/ramet/internal/image/debian/control"
	"ramet.dev/ramet/internal/image/debian/deb"
)

const dpkgDir = "var/lib/dpkg/"

// triggers has the packages that are interested in each trigger, as dpkg records them at
// unpack time: explicit triggers by name, file triggers by path.
type triggers map[string][]string

// add reads a package's triggers file. Activations need no record: every
// package is configured from scratch, and that activates them again.
func (t triggers) add(name string, file []byte) {
	for _, line := range strings.Split(string(file), "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) != 2 || !validTrigger(words[1]) {
			continue
		}
		switch words[0] {
		case "interest", "interest-await":
			t[words[1]] = append(t[words[1]], name)
		case "interest-noawait":
			t[words[1]] = append(t[words[1]], name+"/noawait")
		}
	}
}

// validTrigger accepts absolute paths, and names that are one path element.
func validTrigger(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	if strings.HasPrefix(s, "/") {
		return len(s) > 1
	}
	return s != "" && s[0] != '.' && len(s) < 200 && !strings.Contains(s, "/") &&
		s != "File" && s != "Unincorp" && s != "Lock"
}

// addToDatabase writes dpkg's files about u and notes its status.
func (r *Writer) addToDatabase(u *deb.Package, list []string, conffiles map[string]string) error {
	name := u.Info.DpkgName()
	if err := r.appendStatus(u, conffiles); err != nil {
		return err
	}
	r.trig.add(name, u.Scripts["triggers"])
	info := dpkgDir + "info/" + name + "."
	if err := r.write(info+"list", 0o644, []byte(strings.Join(list, "\n")+"\n")); err != nil {
		return err
	}
	for _, file := range u.Names {
		mode := int64(0o644)
		switch file {
		case "preinst":
			r.preinst[u.Info] = true
			mode = 0o755
		case "postinst", "prerm", "postrm", "config":
			mode = 0o755
		}
		if err := r.write(info+file, mode, u.Scripts[file]); err != nil {
			return err
		}
	}
	return nil
}

// appendStatus adds the stanza of u. Configuration files are in place already,
// so they carry their digest: dpkg then finds nothing left to ask about.
func (r *Writer) appendStatus(u *deb.Package, conffiles map[string]string) error {
	st, err := control.Parse(u.Info.Name+" control file", u.Control)
	if err != nil {
		return err
	}
	w := &r.status
	for i, f := range st.Fields {
		switch strings.ToLower(string(f.Name)) {
		case "status", "conffiles":
			continue // dpkg's own fields, which no package sets
		}
		fmt.Fprintf(w, "%s:%s\n", f.Name, bytes.TrimRight(f.Value, " \t\r\n"))
		if i == 0 {
			w.WriteString("Status: install ok unpacked\n")
		}
	}
	if len(conffiles) > 0 {
		paths := make([]string, 0, len(conffiles))
		for p := range conffiles {
			paths = append(paths, p)
		}
		sort.Strings(paths)
		w.WriteString("Conffiles:\n")
		for _, p := range paths {
			sum := conffiles[p]
			if sum == "" {
				sum = "newconffile" // dpkg's word for: not there yet
			}
			fmt.Fprintf(w, " %s %s\n", p, sum)
		}
	}
	w.WriteByte('\n')
	return nil
}

// writeDatabase writes the parts of dpkg's database that are not about a
// single package.
func (r *Writer) writeDatabase() error {
	for _, d := range []string{"alternatives", "info", "parts", "triggers", "updates"} {
		if err := r.mkdir(dpkgDir+d, 0o755); err != nil {
			return err
		}
	}
	files := map[string]string{
		"status":        r.status.String(),
		"available":     "",
		"diversions":    "",
		"statoverride":  "",
		"cmethopt":      "apt apt\n",
		"info/format":   "1\n",
		"triggers/File": r.trig.fileTriggers(),
	}
	for name, who := range r.trig {
		if !strings.HasPrefix(name, "/") {
			files["triggers/"+name] = strings.Join(who, "\n") + "\n"
		}
	}
	files["triggers/Unincorp"] = ""
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if err := r.write(dpkgDir+name, 0o644, []byte(files[name])); err != nil {
			return err
		}
	}
	return nil
}

func (t triggers) fileTriggers() string {
	var lines []string
	for name, who := range t {
		if strings.HasPrefix(name, "/") {
			for _, w := range who {
				lines = append(lines, name+" "+w)
			}
		}
	}
	if len(lines) == 0 {
		return ""
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n") + "\n"
}
