package docs

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const notTested = "# not tested: "

// readersPrograms are programs of the reader's machine that commands of documents run, and that a
// machine with Ramet need not have.
var readersPrograms = []string{"python3"}

// page is a document with its console blocks.
type page struct {
	path   string
	lines  []string
	blocks []block
}

// block is a console block. Lines count from 0.
type block struct {
	line   int    // of the fence
	reason string // why it is not tested, or ""
	steps  []step
}

// step is a command with its expected output.
type step struct {
	line    int // of the command
	command string
	want    []string
	from    int // line of the first line of want
}

// missing returns a program that a command of the block runs, and this machine does not have.
func (b *block) missing() string {
	for _, s := range b.steps {
		name, _, _ := strings.Cut(s.command, " ")
		if !slices.Contains(readersPrograms, name) {
			continue
		}
		if _, err := exec.LookPath(name); err != nil {
			return name
		}
	}
	return ""
}

func readPage(path string) (page, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return page{}, err
	}
	return parsePage(path, string(text))
}

func parsePage(path, text string) (page, error) {
	p := page{path: path, lines: strings.Split(text, "\n")}
	for i := 0; i < len(p.lines); i++ {
		if !strings.HasPrefix(p.lines[i], "```") {
			continue
		}
		end := i + 1
		for end < len(p.lines) && p.lines[end] != "```" {
			end++
		}
		if end == len(p.lines) {
			return p, fmt.Errorf("%s:%d: the block does not end", path, i+1)
		}
		if p.lines[i] == "```console" {
			b, err := parseBlock(p.lines, i, end)
			if err != nil {
				return p, fmt.Errorf("%s:%w", path, err)
			}
			p.blocks = append(p.blocks, b)
		}
		i = end
	}
	return p, nil
}

// parseBlock parses the block whose fences are the lines first and end.
func parseBlock(lines []string, first, end int) (block, error) {
	b := block{line: first}
	i := first + 1
	if reason, ok := strings.CutPrefix(lines[i], notTested); ok {
		b.reason = reason
		i++
	}
	for i < end {
		command, ok := strings.CutPrefix(lines[i], "$ ")
		if !ok {
			return b, fmt.Errorf("%d: output without a command: %q", i+1, lines[i])
		}
		s := step{line: i, command: command}
		for i++; i < end && strings.HasPrefix(lines[i], "> "); i++ {
			s.command += "\n" + lines[i][2:]
		}
		s.from = i
		for ; i < end && !strings.HasPrefix(lines[i], "$ "); i++ {
			s.want = append(s.want, lines[i])
		}
		b.steps = append(b.steps, s)
	}
	return b, nil
}

// replace returns the text of the page with other outputs, by the lines of their commands.
func (p page) replace(outputs map[int][]string) string {
	var lines []string
	next := 0
	for _, b := range p.blocks {
		for _, s := range b.steps {
			if got, ok := outputs[s.line]; ok {
				lines = append(lines, p.lines[next:s.from]...)
				lines = append(lines, got...)
				next = s.from + len(s.want)
			}
		}
	}
	return strings.Join(append(lines, p.lines[next:]...), "\n")
}
