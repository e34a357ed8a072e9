"""What ``--ranks`` may say in place of numbers."""

AUTO = "auto"
LIFE_DEFAULT = "of a life"
"""What ``auto`` becomes where a run is saved and resumed: every rank of a small world, else the first two, by whose
files those of the others are known."""
MAX_DEFAULT_RANKS = 4
"""The largest world of which every rank is run then."""
FIRST_AND_LAST = "first and last"
"""What ``auto`` becomes where ranks may differ."""
ROLES = "roles "
"""What ``auto`` becomes where the model is divided among ranks: that, and one rank of each role."""
