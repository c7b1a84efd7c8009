package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const controlSocket = "/run/ramet.sock"

// reply is the parts of an answer that the commands below look at.
type reply struct {
	Error    *struct{ Code, Detail string }
	Children []struct{ ID string }
	Child    *struct{ Index int }
	Info     *struct{ Index int }
}

// control talks to the socket of a sandbox that may control itself:
//
//	say LINE…       says each line on one connection and prints the answers
//	note LINE       says a line and notes each answer in /srv/note
//	agent N         branches into N with the command there, see agent
//	fork N          forks N times, in its children too, and prints what came of it
//	storm           asks without end, and notes in /srv/storm what it is told to ask again
//	garbage, deaf   do what no client should
func control(args []string) (int, error) {
	if len(args) == 0 {
		return 2, errors.New("control what?")
	}
	switch args[0] {
	case "say":
		return 0, withControl(func(c *controlConn) error {
			for _, line := range args[1:] {
				answer, err := c.say(line)
				if err != nil {
					return err
				}
				fmt.Println(answer)
			}
			return nil
		})
	case "note":
		return 0, noteAnswer(args[1])
	case "agent":
		return agent(args[1])
	case "fork":
		return forkMany(args[1])
	case "storm":
		return storm()
	case "garbage":
		return 0, garbage()
	case "deaf":
		return 0, deaf()
	}
	return 2, fmt.Errorf("no control %s", args[0])
}

type controlConn struct {
	net.Conn
	in *bufio.Reader
}

func dialControl() (*controlConn, error) {
	c, err := net.Dial("unix", controlSocket)
	if err != nil {
		return nil, err
	}
	return &controlConn{c, bufio.NewReader(c)}, nil
}

func withControl(do func(*controlConn) error) error {
	c, err := dialControl()
	if err != nil {
		return err
	}
	defer c.Close()
	return do(c)
}

func (c *controlConn) say(line string) (string, error) {
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		return "", err
	}
	answer, err := c.in.ReadString('\n')
	return strings.TrimSuffix(answer, "\n"), err
}

func (c *controlConn) ask(line string) (*reply, error) {
	answer, err := c.say(line)
	if err != nil {
		return nil, err
	}
	r := &reply{}
	return r, json.Unmarshal([]byte(answer), r)
}

// agent forks its sandbox with the command there. Each child goes its own way: it
// writes a file and tags itself. The child 0 forks once more, and its child once
// more, which is too deep.
func agent(n string) (int, error) {
	out, err := exec.Command("/usr/local/bin/ramet", "fork", "-n", n).Output()
	if err != nil {
		return 1, err
	}
	if !strings.HasPrefix(string(out), "child ") {
		os.Stdout.Write(out)
		return 0, nil
	}
	branch := strings.TrimSpace(strings.TrimPrefix(string(out), "child "))
	if err := tagSelf("branch=" + branch); err != nil {
		return 1, err
	}
	if err := os.WriteFile("/srv/branch-"+branch, nil, 0o644); err != nil || branch != "0" {
		return 0, err
	}
	_, err = exec.Command("/usr/local/bin/ramet", "fork", "--exit-code").Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0, err // the parent
	}
	if exit.ExitCode() != 10 {
		return 1, tagSelf("wrong=" + strconv.Itoa(exit.ExitCode()))
	}
	if err := tagSelf("branch=0.0"); err != nil {
		return 1, err
	}
	out, err = exec.Command("/usr/local/bin/ramet", "fork").CombinedOutput()
	if !errors.As(err, &exit) {
		return 1, tagSelf("wrong=deeper")
	}
	return 0, tagSelf("exit="+strconv.Itoa(exit.ExitCode()), "said="+strings.TrimSpace(string(out)))
}

func noteAnswer(line string) error {
	return withControl(func(c *controlConn) error {
		answer, err := c.say(line)
		if err != nil {
			return err
		}
		return os.WriteFile("/srv/note", []byte(answer+"\n"), 0o644)
	})
}

func tagSelf(tags ...string) error {
	return exec.Command("/usr/local/bin/ramet", append([]string{"tag"}, tags...)...).Run()
}

// forkMany makes one fork after the other.
func forkMany(times string) (int, error) {
	n, err := strconv.Atoi(times)
	if err != nil {
		return 2, err
	}
	results := map[string]int{}
	for range n {
		err := withControl(func(c *controlConn) error {
			r, err := c.ask(`{"op":"fork","metadata":{"made":"1"}}`)
			switch {
			case err != nil:
				return err
			case r.Error != nil:
				results[r.Error.Code]++
			case len(r.Children) == 1 && r.Children[0].ID != "":
				results["parent"]++
			case r.Child != nil:
				results["child"]++
			default:
				results["other"]++
			}
			return nil
		})
		if err != nil {
			return 1, err
		}
	}
	return 0, json.NewEncoder(os.Stdout).Encode(results)
}

func storm() (int, error) {
	f, err := os.OpenFile("/srv/storm", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return 1, err
	}
	c, err := dialControl()
	if err != nil {
		return 1, err
	}
	for {
		r, err := c.ask(`{"op":"info"}`)
		switch {
		case err != nil:
			fmt.Fprintln(f, "failed:", err)
			return 1, err
		case r.Error != nil:
			fmt.Fprintln(f, r.Error.Code)
		case r.Info == nil:
			fmt.Fprintln(f, "other")
		}
	}
}

// garbage says what is no request, and checks that it is told so.
func garbage() error {
	for _, line := range []string{
		"", "x", "{", "[]", "null", "\x00\xff", `{"op":"info"`, `{"op":"exec"}`, `{"op":"destroy","sandbox":"a"}`, `{"op":"fork","count":-1}`, `{"op":"fork","count":1e9}`,
		`{"op":"fork","sandbox":"sbx_aaaaaaaaaaaaaaaa"}`, `{"op":"info"} {"op":"info"}`, strings.Repeat(`{"a":`, 3000), `{"op":"` + strings.Repeat("x", 16000) + `"}`,
	} {
		err := withControl(func(c *controlConn) error {
			r, err := c.ask(line)
			if err == nil && (r.Error == nil || r.Error.Code != "invalid_argument") {
				err = fmt.Errorf("the answer is %+v", r)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%.40q: %w", line, err)
		}
	}
	// A line without an end is answered, and the connection closed.
	if err := withControl(func(c *controlConn) error {
		go io.WriteString(c, strings.Repeat("x", 1<<20))
		answer, err := io.ReadAll(c)
		if !strings.Contains(string(answer), "invalid_argument") {
			return fmt.Errorf("endless line: %q, %v", answer, err)
		}
		return nil
	}); err != nil {
		return err
	}
	// Descriptors that come along are not kept.
	if err := withControl(func(c *controlConn) error {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		if _, _, err := c.Conn.(*net.UnixConn).WriteMsgUnix([]byte("{}\n"), syscall.UnixRights(int(w.Fd())), nil); err != nil {
			return err
		}
		w.Close()
		if _, err := c.in.ReadString('\n'); err != nil {
			return err
		}
		if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := r.Read(make([]byte, 1)); err != io.EOF {
			return fmt.Errorf("a descriptor was kept: %v", err)
		}
		return nil
	}); err != nil {
		return err
	}
	// Half a request, and gone.
	return withControl(func(c *controlConn) error {
		_, err := io.WriteString(c, `{"op":"fo`)
		return err
	})
}

// deaf asks and reads nothing, on as many connections as there may be.
func deaf() error {
	for range 12 {
		c, err := dialControl()
		if err != nil {
			return err
		}
		if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		if _, err := io.WriteString(c, strings.Repeat("x\n", 1_000_000)); err == nil {
			return errors.New("all of it was taken, and nothing read")
		}
	}
	fmt.Println("deaf")
	time.Sleep(time.Hour)
	return nil
}
