"""Commands for operators, which send requests to a worker's REST API."""
