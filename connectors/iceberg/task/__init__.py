"""The sink task: receives records, stages their rows, and follows the coordinator."""
