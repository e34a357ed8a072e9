"""What ``--ranks`` may say in place of numbers."""

AUTO = "auto"
FIRST_AND_LAST = "first and last"
"""What ``auto`` becomes where ranks may differ."""
