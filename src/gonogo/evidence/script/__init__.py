"""Python scripts as evidence: calls, values, flow of names, and edits; nothing is run."""
