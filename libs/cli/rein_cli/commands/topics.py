"""`rein topics`: the table of topics, and whether the cluster agrees with it."""
