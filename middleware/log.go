package middleware

import (
	"context"
	"log/slog"
)

// LogTo returns an Observer that writes events to logger: what went well at
// debug level, retries and refreshes at info, what failed and what was given up at
// warn. Disabled levels cost one check. A nil logger is slog.Default().
func LogTo(logger *slog.Logger) Observer {
	if logger == nil {
		logger = slog.Default()
	}
	return func(ctx context.Context, e Event) {
		level := levelOf(e)
		if !logger.Enabled(ctx, level) {
			return
		}
		logger.LogAttrs(ctx, level, e.Kind.String(), attrsOf(e)...)
	}
}

func levelOf(e Event) slog.Level {
	switch e.Kind {
	case AttemptStarted:
		return slog.LevelDebug
	case AttemptEnded:
		if e.Cause.Transient() || e.Err != nil {
			return slog.LevelInfo
		}
		return slog.LevelDebug
	case EndpointMarked, BreakerOpened, PoolReplaced:
		return slog.LevelWarn
	case GaveUp:
		if e.Stop != CanceledByCaller {
			return slog.LevelWarn
		}
	case TopologyRefreshed, RangesRefreshed:
		if e.Err != nil {
			return slog.LevelWarn
		}
	}
	return slog.LevelInfo
}

func attrsOf(e Event) []slog.Attr {
	attrs := make([]slog.Attr, 0, 12)
	add := func(set bool, a slog.Attr) {
		if set {
			attrs = append(attrs, a)
		}
	}
	add(e.Operation != "", slog.String("op", e.Operation))
	add(e.Attempt != 0, slog.Int("attempt", e.Attempt))
	add(e.Region != "", slog.String("region", string(e.Region)))
	add(e.Range != "", slog.String("range", e.Range))
	add(e.Probe, slog.Bool("probe", true))
	add(e.Override, slog.Bool("override", true))
	add(e.Cause != Unjudged, slog.String("cause", e.Cause.String()))
	add(e.Code != "" && e.Code != e.Cause.String(), slog.String("code", e.Code))
	add(e.Budget != "", slog.String("budget", e.Budget))
	add(e.Wait != 0, slog.Duration("wait", round(e.Wait)))
	add(e.Elapsed != 0, slog.Duration("elapsed", round(e.Elapsed)))
	add(e.Rows != 0, slog.Int("rows", e.Rows))
	add(e.Stop != NotStopped, slog.String("stop", e.Stop.String()))
	add(e.Err != nil, slog.Any("err", Redact(e.Err)))
	return attrs
}
