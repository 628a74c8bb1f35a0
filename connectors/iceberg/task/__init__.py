"""The sink task: accept rows poll by poll, stage them, and follow the coordinator."""
