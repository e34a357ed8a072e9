"""The files that start a strategy, written for the launcher that the user has."""
