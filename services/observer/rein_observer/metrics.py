"""The observer's metrics."""

from prometheus_client import Counter, Gauge

EVENTS_READ = Counter("rein_observer_events_read_total", "Events read from the topics, by message type", ["message"])
ALERTS_RAISED = Counter("rein_observer_alerts_raised_total", "Alerts raised, by code", ["code"])
HELDOUT_PASS_RATE = Gauge("rein_observer_heldout_pass_rate", "Newest held-out pass rate of the newest run")
TRAIN_PASS_RATE = Gauge("rein_observer_train_pass_rate", "Mean training reward of the newest step of the newest run")
