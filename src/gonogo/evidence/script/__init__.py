"""Static analysis of Python scripts: calls, values, data flow by names, and edits; no code is executed."""
