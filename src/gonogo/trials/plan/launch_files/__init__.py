"""The files that launch a strategy, for various launchers."""
