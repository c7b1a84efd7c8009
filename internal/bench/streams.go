package bench

import (
	"context"
	"fmt"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/bench/transfer"
	"ramet.dev/ramet/internal/workload"
)

// streamBytes is the number of bytes of one operation.
const streamBytes = 1 << 30

// streamOp sends bytes through the daemon and returns the number that arrived.
type streamOp struct {
	name, what string
	least, aim float64 // MiB/s
	run        func(t *transfer.Transfer, ctx context.Context, ref string) (int64, error)
}

// streamOps are the operations in their order: the file is written before it is read.
var streamOps = []streamOp{
	{"stdout", "what a command writes to stdout", 150, 400, (*transfer.Transfer).Stdout},
	{"write", "writing a file of 1 GiB", 300, 800, (*transfer.Transfer).Write},
	{"read", "reading a file of 1 GiB", 300, 800, (*transfer.Transfer).Read},
	{"port", "a connection to a port", 300, 0, (*transfer.Transfer).Port},
}

func streamCase(op string) string { return caseStreams + "-" + op }

// streams measures the throughput into a sandbox and out of it.
func (b *bench) streams(ctx context.Context) error {
	sb, err := b.s.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return err
	}
	if _, err := b.c.Processes.Start(ctx, sb.ID, api.StartRequest{Argv: []string{"python3", "-c", b.stream.Sender()}}); err != nil {
		return err
	}
	if err := b.meter().Settle(ctx, 1); err != nil {
		return err
	}
	for _, op := range streamOps {
		err := b.repeat(ctx, kind{name: streamCase(op.name), n: 1}, func(ctx context.Context) (sample, error) {
			s := sample{workMS: b.speed.Sample()}
			began := time.Now()
			n, err := op.run(&b.stream, ctx, sb.ID)
			if err == nil && n != b.stream.Bytes {
				err = fmt.Errorf("%d bytes arrived, not %d", n, b.stream.Bytes)
			}
			s[mibPerSecond] = float64(n) / (1 << 20) / time.Since(began).Seconds()
			return s, err
		})
		if err != nil {
			return err
		}
	}
	return b.s.Destroy(ctx, sb.ID)
}

// attaches measures how long after the return of a fork the output of an inherited process arrives.
func (b *bench) attaches(ctx context.Context) error {
	sb, err := b.s.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return err
	}
	p, err := b.c.Processes.Start(ctx, sb.ID, api.StartRequest{Shell: "echo started; exec sleep infinity"})
	if err != nil {
		return err
	}
	if err := transfer.FirstOutput(ctx, b.c, sb.ID, p.PID); err != nil {
		return err
	}
	err = b.repeat(ctx, kind{name: caseAttach, n: 1}, func(ctx context.Context) (sample, error) { return b.attach(ctx, sb.ID, p.PID) })
	if err != nil {
		return err
	}
	return b.s.Destroy(ctx, sb.ID)
}

func (b *bench) attach(ctx context.Context, ref string, pid int) (sample, error) {
	if err := b.meter().Settle(ctx, 1); err != nil {
		return nil, err
	}
	s := sample{workMS: b.speed.Sample()}
	f, err := b.s.ForkUntouched(ctx, ref, 1)
	if err != nil {
		return nil, err
	}
	s[pauseMS], s[returnMS] = millis(f.Pause), millis(f.Return)
	began := time.Now()
	if err := transfer.FirstOutput(ctx, b.c, f.Children[0].ID, pid); err != nil {
		return nil, err
	}
	s[roundtripMS] = millis(time.Since(began))
	return s, b.s.Destroy(ctx, f.IDs()...)
}
