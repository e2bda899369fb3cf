"""The inference node's metrics."""

from prometheus_client import Counter, Gauge, Histogram

VERSION = Gauge("rein_inference_weights_version", "Version the engine is confirmed to serve; 0 = base weights")
IS_READY = Gauge("rein_inference_ready_bool", "1 = takes training traffic")
UPDATES = Counter("rein_inference_updates_total", "Weight updates, by outcome", ["outcome"])
UPDATE_S = Histogram(
    "rein_inference_update_seconds",
    "From switch to confirmed, seconds",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
PROBE_GAP_NATS = Gauge("rein_inference_probe_gap_nats", "Mean absolute difference to the learner at the last update")
ENGINE_STARTS = Counter("rein_inference_engine_starts_total", "Starts of the engine, by outcome", ["outcome"])
BYTES_RECEIVED = Counter("rein_inference_received_bytes_total", "Bytes of weights received")
