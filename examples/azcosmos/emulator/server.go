package emulator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// ErrMissing says that node or the server's npm package is not there. The error around it says how to get it.
var ErrMissing = errors.New("the emulator is not installed")

// readyWithin bounds the start, which takes less than a second on an idle machine.
const readyWithin = 30 * time.Second

var readyLine = regexp.MustCompile(`Ready to accept \w+ connections at (\S+:\d+)`)

// Server is a running @vercel/cosmosdb-server. Close it.
type Server struct {
	// URL of the server, plain HTTP on the loopback.
	URL *url.URL

	process *exec.Cmd
	stdin   io.Closer
	ended   chan struct{}
}

// Start runs the server that `npm ci` has installed in dir, which also holds serve.js, on a free port. ctx bounds the start only.
func Start(ctx context.Context, dir string) (*Server, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("%w: node is not in PATH; install Node.js 20 or newer", ErrMissing)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@vercel", "cosmosdb-server")); err != nil {
		return nil, fmt.Errorf("%w: run `npm ci` in examples/azcosmos", ErrMissing)
	}
	s := &Server{ended: make(chan struct{})}
	s.process = exec.CommandContext(context.WithoutCancel(ctx), node, "serve.js", "--no-ssl", "--host", "127.0.0.1", "-p", "0")
	s.process.Dir = dir
	if s.stdin, err = s.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.process.Stderr = os.Stderr
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go func() {
		defer close(s.ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() { // to the end, or the server blocks on a full pipe
			if m := readyLine.FindStringSubmatch(lines.Text()); m != nil {
				select {
				case ready <- m[1]:
				default:
				}
			}
		}
		_ = s.process.Wait()
	}()
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	select {
	case address := <-ready:
		s.URL = &url.URL{Scheme: "http", Host: address}
		return s, nil
	case <-s.ended:
		return nil, errors.New("the emulator ended before it was ready")
	case <-ctx.Done():
		s.Close()
		return nil, fmt.Errorf("the emulator is not ready: %w", context.Cause(ctx))
	}
}

// Close ends the server and waits for its end, at most three seconds before it is killed.
func (s *Server) Close() {
	_ = s.stdin.Close()
	select {
	case <-s.ended:
	case <-time.After(3 * time.Second):
		_ = s.process.Process.Kill()
		<-s.ended
	}
}
