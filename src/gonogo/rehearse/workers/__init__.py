"""Runs ranks as processes on this machine or on a Ray cluster."""
