"""``gonogo ui``: the commands in the browser of the one who started it."""
