"""Event traces of a rank, exported for trace viewers. Only imported if a trace is requested."""
