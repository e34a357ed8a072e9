"""Where ranks run: as processes on this machine, or on a Ray cluster."""
