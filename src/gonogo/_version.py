"""The version of gonogo: the build reads it here, and so does every layer."""

__version__ = "0.2.0"
