"""Child processes and temporary folders that do not outlive their owner."""
