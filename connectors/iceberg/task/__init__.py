"""The sink task: receives records, stages their rows, and reports them to the coordinator."""
