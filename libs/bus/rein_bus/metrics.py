"""What the bus counts. `topic` is the topic's name without prefix and version, e.g. "turn.captured"."""

from prometheus_client import Counter

PUBLISHED = Counter("rein_bus_published_records", "Records acknowledged by the brokers", ["topic"])
READ = Counter("rein_bus_read_records", "Records decoded for a consumer, redeliveries included", ["topic"])
DEAD_LETTERS = Counter("rein_bus_dead_letters", "Records given up by a consumer and kept as dead letters", ["topic"])
REBALANCES = Counter("rein_bus_rebalances", "Rebalances this process's members went through")
POSTPONED_COMMITS = Counter("rein_bus_postponed_commits", "Commits that a rebalance or the brokers kept for later")
FENCED_COMMITS = Counter("rein_bus_fenced_commits", "Transactions lost to another member, or of unknown outcome")
