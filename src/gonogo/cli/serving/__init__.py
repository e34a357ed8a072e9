"""What servers of gonogo share: the folders that they may read, and commands run as jobs."""
