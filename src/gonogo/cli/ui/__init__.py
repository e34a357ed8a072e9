"""``gonogo ui``: the commands in a local browser."""
