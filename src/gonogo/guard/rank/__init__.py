"""The guard inside one rank: hooks, records, and the facts that ranks exchange."""
