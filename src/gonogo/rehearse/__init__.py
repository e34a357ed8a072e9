"""Starts ranks on virtual accelerators and combines their records."""
