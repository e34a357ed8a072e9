"""Reads the logs of a failed run: its lines, its exceptions, and what they reveal of the setup.

``source`` opens files, ``sieve`` extracts the relevant lines from gigabytes, ``line`` cleans them, ``traceback``
parses Python tracebacks, ``facts`` extracts versions and configuration; ``failure_log`` combines these for hazards.
"""
