"""The guard within one rank: hooks, records, and what ranks tell each other."""
