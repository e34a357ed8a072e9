"""Rehearsals that are kept: the same again is answered from the record, as long as all that was read is the same."""
