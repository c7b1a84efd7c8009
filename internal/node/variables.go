package node

import (
	"context"
	"io"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
)

// variablesTimeout is how long an interpreter may take to describe its variables.
const variablesTimeout = 30 * time.Second

// Variables has the interpreter of a context describe its variables.
func (m *Node) Variables(ctx context.Context, ref, name string) ([]interp.Variable, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	sentry, err := b.running(api.StateRunning)
	if err != nil {
		return nil, err
	}
	a := &interpAnswer{}
	ran, err := sentry.Run(ctx, &wire.Run{Context: name, Kind: interp.KindVariables, TimeoutMS: variablesTimeout.Milliseconds()}, nil,
		launch.RunIO{Stdout: io.Discard, Stderr: io.Discard, Part: a.take})
	if err != nil {
		return nil, m.explain(b, sentry, err)
	}
	res, err := a.result(name, ran)
	if err != nil {
		return nil, m.explain(b, sentry, err)
	}
	if res.Error != nil {
		return nil, api.Errorf(api.CodeConflict, "%s: %s", res.Error.Name, res.Error.Value)
	}
	return a.done.Variables, nil
}
