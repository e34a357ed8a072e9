"""A rank followed event by event, for files that viewers open. Nothing of it is loaded unless one is asked for."""
