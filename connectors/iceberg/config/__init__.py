"""What a connector may set, and the frozen values that the keys become: the only place that reads
strings."""
