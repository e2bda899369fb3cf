"""What a run is and what it needs next; pure, no I/O and no clock of its own."""
