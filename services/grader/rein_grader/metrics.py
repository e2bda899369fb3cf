"""The grader's metrics."""

from prometheus_client import Counter, Gauge, Histogram

IN_FLIGHT = Gauge("rein_grader_gradings_in_flight", "Gradings running now")
GRADED = Counter(
    "rein_grader_rollouts_total",
    "Rollouts graded, by outcome (passed, failed, absent) and failure code",
    ["outcome", "code"],
)
REUSED = Counter(
    "rein_grader_grades_reused_total", "Grades of an earlier rollout with the same task and patch used again"
)
RETRIED = Counter("rein_grader_gradings_retried_total", "Gradings tried again, by code of the trouble", ["code"])
WALL_S = Histogram(
    "rein_grader_grading_seconds", "Wall-clock time of a grading", buckets=(0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
)
CPU_S = Histogram(
    "rein_grader_grading_cpu_seconds", "CPU time of a test run", buckets=(0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
)
