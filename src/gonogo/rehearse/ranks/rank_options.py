"""What ``--ranks`` may say in place of numbers."""

AUTO = "auto"
OF_A_LIFE = "of a life"
"""What ``auto`` becomes where a run is saved and resumed: every rank of a small world, else the first two, by whose
files those of the others are known."""
ALL_UP_TO = 4
"""The largest world of which every rank is run then."""
FIRST_AND_LAST = "first and last"
"""What ``auto`` becomes where ranks may differ."""
