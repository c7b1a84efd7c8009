package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/cli/session"
)

// kernelModule is the kernel for Jupyter, a part of the package ramet of Python.
const kernelModule = "ramet.jupyter"

func (a *app) jupyterCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "jupyter", Short: "Add a kernel to Jupyter whose cells run in a sandbox"}
	cmd.AddCommand(a.jupyterInstallCommand())
	return cmd
}

func (a *app) jupyterInstallCommand() *cobra.Command {
	var python, prefix, name, display, image, network string
	cmd := &cobra.Command{
		Use: "install", Short: "Install the kernel, so that Jupyter lists it", Args: cobra.NoArgs,
		Long: "Install a kernel for Jupyter whose cells run in a sandbox, which can be forked, compared and rolled back from the notebook. It is a part of the package ramet of Python: pip install 'ramet[jupyter]'.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			python, err := pythonWithKernel(cmd.Context(), python)
			if err != nil {
				return err
			}
			args := []string{"-m", kernelModule, "install", "--name", name, "--image", image}
			for _, option := range []struct{ name, value string }{{"--prefix", prefix}, {"--display-name", display}, {"--network", network}} {
				if option.value != "" {
					args = append(args, option.name, option.value)
				}
			}
			install := exec.CommandContext(cmd.Context(), python, args...)
			install.Stdout, install.Stderr = a.Out, a.Err
			var exit *exec.ExitError
			if err := install.Run(); errors.As(err, &exit) {
				return session.ExitError(max(exit.ExitCode(), 1)) // it has said why
			} else if err != nil {
				return fmt.Errorf("run %s: %w", python, err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&python, "python", "", "Python that has the package (default the one beside this program, or python3)")
	f.StringVar(&prefix, "prefix", "", "environment to install into (default the directories of this user)")
	f.StringVar(&name, "name", "ramet", "name of the kernel")
	f.StringVar(&display, "display-name", "", "name that notebooks show (default \"Ramet (IMAGE)\")")
	f.StringVar(&image, "image", "python", "image of the sandboxes")
	f.StringVar(&network, "net", "", "profile of their network (default none)")
	return cmd
}

// pythonWithKernel returns the Python to install the kernel for: the one that is named, the one beside
// this program, where pip has put both, or the one in PATH.
func pythonWithKernel(ctx context.Context, named string) (string, error) {
	python := named
	if python == "" {
		python = "python3"
		if self, err := os.Executable(); err == nil {
			if beside := filepath.Join(filepath.Dir(self), "python3"); exec.Command(beside, "-c", "").Run() == nil {
				python = beside
			}
		}
	}
	path, err := exec.LookPath(python)
	if err != nil {
		return "", api.Invalid("python", "there is no program %q: --python names the Python that has the package ramet", python)
	}
	if err := exec.CommandContext(ctx, path, "-c", "import "+kernelModule).Run(); err != nil {
		return "", api.Invalid("python", "%s has no kernel: '%s -m pip install \"ramet[jupyter]\"' installs it, and --python names another Python", path, path)
	}
	return path, nil
}
