"""Tables and the changes of their schema: what rows need, what a table has, what is done about the
difference."""
