"""The ranks of a rehearsal: which are run, and where they part."""
