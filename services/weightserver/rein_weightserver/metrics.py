"""The weight server's metrics."""

from prometheus_client import Counter, Gauge

BYTES_RECEIVED = Counter("rein_weightserver_published_bytes_total", "Bytes of weights received from learners")
BYTES_SENT = Counter("rein_weightserver_sent_bytes_total", "Bytes of weights sent to nodes")
PUBLISHES = Counter("rein_weightserver_publishes_total", "Publish calls, by outcome", ["outcome"])
CONFIRMS = Counter("rein_weightserver_confirms_total", "Confirmations by nodes, by state", ["state"])
NODES_LEFT_OUT = Counter("rein_weightserver_nodes_left_out_total", "Nodes that did not stage a version in time")
NODES_SUBSCRIBED = Gauge("rein_weightserver_nodes_subscribed_count", "Nodes with an open subscription")
