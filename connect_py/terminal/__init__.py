"""Commands for people who operate workers: they ask a worker over REST."""
