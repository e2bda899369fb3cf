"""The dispatcher's metrics."""

from prometheus_client import Counter

EVENTS_PUBLISHED = Counter("rein_dispatcher_events_published_total", "Events published, by message type", ["message"])
