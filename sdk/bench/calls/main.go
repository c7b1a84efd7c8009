// Calls makes calls of one kind with the Go client, and prints their mean in seconds: calls exec|run_code COUNT.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kind, text string) error {
	count, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	c, err := client.New("unix:" + filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "ramet", "ramet.sock"))
	if err != nil {
		return err
	}
	defer c.Close()
	sbx, err := c.Sandboxes.Create(ctx, api.CreateRequest{Image: "python"})
	if err != nil {
		return err
	}
	defer func() { _ = c.Sandboxes.Destroy(ctx, sbx.ID) }() // the daemon ends soon, too
	one := func() error {
		_, err := c.Processes.Exec(ctx, sbx.ID, api.ExecRequest{Argv: []string{"true"}})
		return err
	}
	if kind == "run_code" {
		one = func() error {
			_, err := c.Contexts.RunCode(ctx, sbx.ID, api.RunCodeRequest{Code: "1"})
			return err
		}
	}
	if err := one(); err != nil {
		return err
	}
	began := time.Now()
	for range count {
		if err := one(); err != nil {
			return err
		}
	}
	fmt.Println(time.Since(began).Seconds() / float64(count))
	return nil
}
