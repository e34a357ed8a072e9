"""Code shared by gonogo's servers: the folders that they may read, and commands run as jobs."""
