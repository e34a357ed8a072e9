"""Values of ``--ranks`` other than numbers."""

AUTO = "auto"
LIFE_DEFAULT = "of a life"
"""What ``auto`` becomes for ``--life``: all ranks of a small world, otherwise ranks 0 and 1.

The files of these two show what those of the other ranks look like.
"""
MAX_DEFAULT_RANKS = 4
"""The largest world in which ``--life`` runs all ranks by default."""
FIRST_AND_LAST = "first and last"
"""What ``auto`` becomes if ranks may differ."""
ROLES = "roles "
"""What ``auto`` becomes where the model is divided among ranks: that, and one rank of each role."""
