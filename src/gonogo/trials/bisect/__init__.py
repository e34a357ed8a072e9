"""``gonogo bisect``: the release that makes the difference, found by rehearsing one after the other."""
