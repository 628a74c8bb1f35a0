"""`connect-py doctor`: checks the requirements of a worker and a connector before they run."""
