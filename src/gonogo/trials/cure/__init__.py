"""``gonogo cure``: finds the smallest change that turns NO-GO into a proven GO, by rehearsing a copy."""
