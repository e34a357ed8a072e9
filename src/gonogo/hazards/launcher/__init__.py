"""Hazards of launching: how the ranks are started."""
