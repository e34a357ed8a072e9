"""A guarded training as evidence: its ranks' records, and what follows from them."""
