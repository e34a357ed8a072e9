"""Evidence from a guarded training run: its ranks' records, and conclusions from them."""
