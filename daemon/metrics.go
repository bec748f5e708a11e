package daemon

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"runnerd/scheduler"
)

// meters count what the daemon does, for /metrics.
type meters struct {
	registry *prometheus.Registry
	fired    *prometheus.CounterVec
	late     prometheus.Histogram
}

func newMeters() *meters {
	m := &meters{
		registry: prometheus.NewRegistry(),
		fired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "runnerd_occurrences_total", Help: "Scheduled instants by how they ended.",
		}, []string{"end"}),
		late: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "runnerd_fire_lateness_seconds", Help: "How late the latest run of a turn fired.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 30},
		}),
	}
	m.registry.MustRegister(m.fired, m.late, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// turn counts one turn of the scheduler.
func (m *meters) turn(t scheduler.Turn) {
	m.fired.WithLabelValues("run").Add(float64(t.Runs))
	m.fired.WithLabelValues("skipped").Add(float64(t.Skipped))
	m.fired.WithLabelValues("missed").Add(float64(t.Missed))
	if t.Runs > 0 {
		m.late.Observe(t.Late.Seconds())
	}
}

// stored are numbers that are read from the database when somebody asks.
type stored struct {
	d       *Daemon
	active  *prometheus.Desc
	pending *prometheus.Desc
}

func (s stored) Describe(ch chan<- *prometheus.Desc) { ch <- s.active; ch <- s.pending }

func (s stored) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	stats, err := s.d.main.Stats(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(s.active, err)
		return
	}
	for execution, n := range stats.Active {
		ch <- prometheus.MustNewConstMetric(s.active, prometheus.GaugeValue, float64(n), string(execution))
	}
	ch <- prometheus.MustNewConstMetric(s.pending, prometheus.GaugeValue, float64(stats.PendingApprovals))
}

func (d *Daemon) metrics() http.Handler {
	d.meters.registry.MustRegister(stored{
		d:       d,
		active:  prometheus.NewDesc("runnerd_active_runs", "Runs that have not ended, by execution.", []string{"execution"}, nil),
		pending: prometheus.NewDesc("runnerd_pending_approvals", "Approvals that wait for a person.", nil, nil),
	})
	return promhttp.HandlerFor(d.meters.registry, promhttp.HandlerOpts{})
}
