"""Dumps that a failing run leaves besides its logs: records of its collectives and of its ranks' stacks."""
