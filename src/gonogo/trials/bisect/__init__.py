"""``gonogo bisect``: finds the release that makes the difference by rehearsing several."""
