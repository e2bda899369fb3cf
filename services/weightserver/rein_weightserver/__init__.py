"""The weight server: keeps versions of the weights, pushes them to inference nodes, switches them together."""
