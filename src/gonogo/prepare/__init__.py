"""``gonogo prepare``: lists what a launch will open and what of it is here, and generates stand-ins for the rest."""
