"""What a log tells of a run that failed: its lines, its exceptions, and the setup that it lets slip.

``source`` opens files, ``sieve`` keeps the lines that matter out of gigabytes, ``line`` cleans them, ``traceback``
reads Python's tracebacks out of them, ``facts`` what they say of versions and configuration; ``failure_log`` puts it
together for hazards to look at.
"""
