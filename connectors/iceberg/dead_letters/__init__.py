"""Dead letters in a table: what their rows hold, how they wait for the end of a poll, how they are
read back."""
