"""The ranks of a rehearsal: which ones are run, and where they diverge."""
