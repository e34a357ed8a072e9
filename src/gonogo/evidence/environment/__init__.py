"""The environment of a run: packages, versions, their compatibility, and the machine."""
