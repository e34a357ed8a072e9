"""Why a failure in a rehearsal may not be the real run's: what has to be so for a certain NO-GO, and whether it is.

``certificate.py`` says so of each rank, from its record and the world around it; nothing else lowers a verdict.
"""
