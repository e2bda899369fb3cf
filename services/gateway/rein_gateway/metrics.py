"""The gateway's metrics."""

from prometheus_client import Counter, Histogram

TURNS_CAPTURED = Counter("rein_gateway_turns_captured_total", "Turns recorded, by dialect", ["dialect"])
TOKENS_SAMPLED = Counter("rein_gateway_tokens_sampled_total", "Sampled tokens recorded")
CALLS_ABORTED = Counter(
    "rein_gateway_calls_aborted_total", "Generations given up: client gone, attempt ended or fenced"
)
ENGINE_FAILURES = Counter("rein_gateway_engine_failures_total", "Generations a node failed")
FINDINGS = Counter("rein_gateway_findings_total", "Findings, by code", ["code"])
CALLS_REFUSED = Counter("rein_gateway_calls_refused_total", "Calls answered with an error, by code", ["code"])
CALL_SECONDS = Histogram("rein_gateway_call_seconds", "Time from request to recorded turn")
