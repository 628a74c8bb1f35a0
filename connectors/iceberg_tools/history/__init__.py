"""What a table's snapshots tell: who made them, what they hold, how two of them differ, and the way
back."""
