"""The learner's metrics."""

from prometheus_client import Counter, Gauge, Histogram

STEPS = Counter("rein_learner_steps_total", "Steps finished")
STEP = Gauge("rein_learner_step_number", "Step finished last")
TOKENS = Counter("rein_learner_tokens_total", "Tokens of rows learnt from")
CUT = Counter("rein_learner_tokens_cut_total", "Training tokens beyond max_row_tokens, not learnt from")
GROUPS_SKIPPED = Counter("rein_learner_groups_skipped_total", "Groups set aside, by reason", ["code"])
GROUPS_IGNORED = Counter(
    "rein_learner_groups_ignored_total", "Group records not held for a step, by reason", ["reason"]
)
CORRELATION = Gauge("rein_learner_probability_correlation_ratio", "Recorded and recomputed probabilities, last step")
STEP_S = Histogram(
    "rein_learner_step_seconds",
    "Time of a step, from its batch to its checkpoint",
    buckets=(0.5, 1, 2, 5, 10, 30, 120, 600),
)
