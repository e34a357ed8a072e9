"""The version of gonogo, the only copy of it: the build reads it from here, and so does the package."""

__version__ = "0.2.0"
