"""The page at `/ui` and the one at `/docs`: static files with security headers."""
