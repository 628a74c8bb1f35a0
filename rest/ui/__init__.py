"""Static files for the pages at `/ui` and `/docs`, with security headers."""
