"""The loop of a sink task: consumer, deliveries, and offset commits."""
