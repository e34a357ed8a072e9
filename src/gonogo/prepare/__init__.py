"""``gonogo prepare``: what a launch will open, what of it is here, and stand-ins for what can be made."""
