"""Notices when all threads of a rehearsed process wait for each other."""
