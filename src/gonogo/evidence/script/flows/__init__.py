"""Data and control flow in training programs: how a loss is computed, what a loop does at certain steps."""
