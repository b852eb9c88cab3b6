package storm

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clusterFaults befall a request on its way, where the simulator knows none.
var clusterFaults = []string{
	"resets", "refused connections", "lost answers", "hangs", "slow answers", "late answers", "cut answers",
	"408", "500", "503", "lost 500", "lost 503",
}

// inflictHere has a fault befall a request between the stack and the simulator.
func inflictHere(next http.RoundTripper, req *http.Request, fault string) (*http.Response, error) {
	failed := func(op string, errno syscall.Errno) (*http.Response, error) {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, errno)}
	}
	switch fault {
	case "resets":
		return failed("read", syscall.ECONNRESET)
	case "refused connections":
		return failed("dial", syscall.ECONNREFUSED)
	case "hangs":
		_, _ = failed("read", 0)
		<-req.Context().Done()
		return nil, req.Context().Err()
	case "slow answers", "late answers":
		if !lasts(req.Context(), map[string]time.Duration{"slow answers": 300 * time.Millisecond, "late answers": 4 * time.Second}[fault]) {
			_, _ = failed("read", 0)
			return nil, req.Context().Err()
		}
		return next.RoundTrip(req)
	case "408", "500", "503":
		_, _ = failed("read", 0)
		return answer(req, fault), nil
	}
	resp, err := next.RoundTrip(req) // it is carried out
	if err != nil {
		return nil, err
	}
	switch fault {
	case "cut answers":
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(resp.Body, 1), broken{}), resp.Body}
		return resp, nil
	case "lost answers":
		_ = resp.Body.Close()
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	_ = resp.Body.Close()
	return answer(req, strings.TrimPrefix(fault, "lost ")), nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func answer(req *http.Request, code string) *http.Response {
	status, _ := strconv.Atoi(code)
	text := "struck"
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: req,
	}
}

// lasts waits, and reports whether the context lasted.
func lasts(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
