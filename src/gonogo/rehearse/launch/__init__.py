"""Determines what a launch command starts, by means of the launcher's own code."""
