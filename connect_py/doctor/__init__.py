"""`connect-py doctor`: looks for what a worker and a connector need before they run."""
