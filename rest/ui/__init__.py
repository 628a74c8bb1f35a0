"""Static files of the pages at `/ui` and `/docs`, with security headers."""
