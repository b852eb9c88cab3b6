package cosmostest

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// gate is the listener of one endpoint. http.Server accepts from it for ever; what feeds it, a TCP listener or Dial, can be
// shut and opened again at the same address, which is how an endpoint refuses connections and comes back.
type gate struct {
	address  string // host:port of a socket, host name in memory
	incoming chan net.Conn
	done     chan struct{}

	mu     sync.Mutex
	open   bool
	closed bool
	socket net.Listener // nil in memory and while shut
	live   map[*conn]struct{}
	loops  sync.WaitGroup
}

// newGate opens a gate at address; "" picks a loopback port, and memory needs no port at all.
func newGate(address string, inMemory bool) (*gate, error) {
	g := &gate{
		address:  address,
		incoming: make(chan net.Conn),
		done:     make(chan struct{}),
		live:     map[*conn]struct{}{},
	}
	if inMemory {
		g.open = true
		return g, nil
	}
	if g.address == "" {
		g.address = "127.0.0.1:0"
	}
	return g, g.listen()
}

// listen starts taking connections at the gate's address. An address just left can be busy for a moment, so it tries again.
func (g *gate) listen() error {
	var config net.ListenConfig
	var socket net.Listener
	var err error
	for range 50 {
		if socket, err = config.Listen(context.Background(), "tcp", g.address); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errors.Join(net.ErrClosed, socket.Close())
	}
	g.address, g.socket, g.open = socket.Addr().String(), socket, true
	g.loops.Go(func() { g.acceptFrom(socket) })
	return nil
}

func (g *gate) acceptFrom(socket net.Listener) {
	for {
		c, err := socket.Accept()
		if err != nil {
			return
		}
		if !g.hand(context.Background(), &conn{Conn: c, gate: g}) {
			_ = c.Close()
		}
	}
}

// hand gives a connection to the server.
func (g *gate) hand(ctx context.Context, c *conn) bool {
	g.mu.Lock()
	ok := g.open
	if ok {
		g.live[c] = struct{}{}
	}
	g.mu.Unlock()
	if !ok {
		return false
	}
	select {
	case g.incoming <- c:
		return true
	case <-g.done:
	case <-ctx.Done():
	}
	g.forget(c)
	return false
}

func (g *gate) forget(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.live, c)
}

// reopen makes a shut gate take connections again, at the same address.
func (g *gate) reopen(inMemory bool) error {
	g.mu.Lock()
	open := g.open
	if inMemory {
		g.open = true
	}
	g.mu.Unlock()
	if open || inMemory {
		return nil
	}
	return g.listen()
}

// shut refuses new connections and resets those that are open.
func (g *gate) shut() {
	g.mu.Lock()
	g.open = false
	socket := g.socket
	g.socket = nil
	victims := make([]*conn, 0, len(g.live))
	for c := range g.live {
		victims = append(victims, c)
	}
	g.mu.Unlock()
	if socket != nil {
		_ = socket.Close()
	}
	for _, c := range victims {
		c.reset()
	}
}

// dial connects in memory.
func (g *gate) dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	var broken atomic.Bool
	far := &conn{Conn: &pipeEnd{Conn: server, host: g.address}, gate: g, broken: &broken}
	if g.hand(ctx, far) {
		return &pipeEnd{Conn: client, host: g.address, broken: &broken}, nil
	}
	_ = client.Close()
	_ = server.Close()
	if err := ctx.Err(); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: pipeAddr(g.address), Err: err}
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: pipeAddr(g.address), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case c := <-g.incoming:
		return c, nil
	case <-g.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener; it ends the gate for good.
func (g *gate) Close() error {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	g.mu.Unlock()
	if first {
		close(g.done)
		g.shut()
		g.loops.Wait()
	}
	return nil
}

// Addr implements net.Listener.
func (g *gate) Addr() net.Addr { return pipeAddr(g.address) }

// conn is the server's end of a connection.
type conn struct {
	net.Conn
	gate   *gate
	broken *atomic.Bool // in memory: what the client sees is a reset, not an end of file
}

func (c *conn) Close() error {
	c.gate.forget(c)
	return c.Conn.Close()
}

// reset closes the connection so that the peer sees ECONNRESET.
func (c *conn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	if c.broken != nil {
		c.broken.Store(true)
	}
	_ = c.Close()
}

// pipeEnd is one end of an in-memory connection.
type pipeEnd struct {
	net.Conn
	host   string
	broken *atomic.Bool
}

func (p *pipeEnd) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	return n, p.explain("read", err)
}

func (p *pipeEnd) Write(b []byte) (int, error) {
	n, err := p.Conn.Write(b)
	return n, p.explain("write", err)
}

func (p *pipeEnd) explain(op string, err error) error {
	if err == nil || p.broken == nil || !p.broken.Load() {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Addr: pipeAddr(p.host), Err: os.NewSyscallError(op, syscall.ECONNRESET)}
}

func (p *pipeEnd) LocalAddr() net.Addr  { return pipeAddr("pipe") }
func (p *pipeEnd) RemoteAddr() net.Addr { return pipeAddr(p.host) }

// pipeAddr is an address that is only a name.
type pipeAddr string

func (pipeAddr) Network() string  { return "tcp" }
func (a pipeAddr) String() string { return string(a) }
