"""The runner's metrics."""

from prometheus_client import Counter, Gauge, Histogram

IN_FLIGHT = Gauge("rein_runner_rollouts_in_flight", "Attempts running now")
FINISHED = Counter("rein_runner_rollouts_total", "Attempts ended, by harness and failure code", ["harness", "code"])
DUPLICATES = Counter("rein_runner_requests_dropped_total", "Requests not run, by reason", ["reason"])
WALL_S = Histogram(
    "rein_runner_rollout_seconds",
    "Wall-clock time of an attempt's harness",
    buckets=(0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800),
)
CPU_S = Histogram(
    "rein_runner_rollout_cpu_seconds",
    "CPU time of an attempt's sandbox",
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 60),
)
PATCH_BYTES = Histogram(
    "rein_runner_patch_bytes", "Size of a patch", buckets=(1, 100, 1000, 10_000, 100_000, 1_000_000)
)
