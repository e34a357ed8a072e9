"""The environment of a run: packages, versions and what works with what, the machine."""
