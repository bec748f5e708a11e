package attack

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"runnerd/connector"
	"runnerd/internal/looptest"
	"runnerd/task"
)

// relayVerb makes the test binary a stdio server: a process of its own, started,
// guarded and contained as each connector is, whose words come from the test.
const relayVerb = "attack-relay"

// relay hands its standard streams to the test that listens at args[0], where it
// says that it is server args[1].
func relay(args []string) int {
	conn, err := net.Dial("tcp", args[0])
	if err == nil {
		_, err = fmt.Fprintf(conn, "%-32s", args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		_, _ = io.Copy(conn, os.Stdin) // its end is the session's
		_ = conn.Close()
	}()
	_, _ = io.Copy(os.Stdout, conn)
	return 0
}

// exchange is where the relays of a test call in.
type exchange struct {
	t       testing.TB
	ln      net.Listener
	servers map[string]*mcp.Server
	wg      sync.WaitGroup
}

// poolOver makes a pool over a scenario's servers, in the place of the world's.
type poolOver func(*looptest.World, map[string]*mcp.Server) *connector.Pool

// memoryPool is a pool over servers in memory, in the place of the world's.
func memoryPool(w *looptest.World, servers map[string]*mcp.Server) *connector.Pool {
	w.T.Helper()
	if err := w.Pool.Close(context.Background()); err != nil {
		w.T.Fatalf("close pool: %v", err)
	}
	pool := connector.New(connector.Options{StateDir: w.Dir, Redact: w.Redact.Text, Idle: -1, Dial: func(ctx context.Context, c task.Connector) (mcp.Transport, error) {
		here, there := mcp.NewInMemoryTransports()
		_, err := servers[c.ID].Connect(context.WithoutCancel(ctx), there, nil)
		return here, err
	}})
	var specs []task.Connector
	for id := range servers {
		specs = append(specs, task.Connector{ID: id, Command: "in-memory"})
	}
	pool.Set(specs)
	return pool
}

// stdioPool is a pool over servers in processes of their own, in the place of the
// world's. It ends with the test.
func stdioPool(w *looptest.World, servers map[string]*mcp.Server) *connector.Pool {
	w.T.Helper()
	if err := w.Pool.Close(context.Background()); err != nil {
		w.T.Fatalf("close pool: %v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.T.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		w.T.Fatal(err)
	}
	x := &exchange{t: w.T, ln: ln, servers: servers}
	x.wg.Go(x.accept)
	w.T.Cleanup(func() {
		w.Close() // first, so that the relays end
		_ = ln.Close()
		x.wg.Wait()
	})
	pool := connector.New(connector.Options{StateDir: w.Dir, Redact: w.Redact.Text, Idle: -1, Environ: []string{"PATH=/usr/bin:/bin"}})
	var specs []task.Connector
	for id := range servers {
		specs = append(specs, task.Connector{ID: id, Command: self, Args: []string{relayVerb, ln.Addr().String(), id}})
	}
	pool.Set(specs)
	return pool
}

func (x *exchange) accept() {
	for {
		conn, err := x.ln.Accept()
		if err != nil {
			return // closed
		}
		x.wg.Go(func() { x.serve(conn) })
	}
}

func (x *exchange) serve(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // the relay is gone
	var id string
	head := make([]byte, 32)
	if _, err := io.ReadFull(conn, head); err != nil {
		return
	}
	_, _ = fmt.Sscan(string(head), &id)
	if x.servers[id] == nil {
		x.t.Errorf("a relay calls itself %q", id)
		return
	}
	session, err := x.servers[id].Connect(context.Background(), &mcp.IOTransport{Reader: conn, Writer: conn}, nil)
	if err == nil {
		_ = session.Wait() // ends with the relay
	}
}
