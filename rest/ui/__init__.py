"""The page at `/ui` and the one at `/docs`: static files, and what a browser may do with them."""
