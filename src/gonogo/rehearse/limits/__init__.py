"""Why a failure in a rehearsal may not occur in the real run: the conditions for a certain NO-GO, and their check.

``certificate.py`` checks them for each rank, from its record and the project's files; nothing else lowers a verdict.
"""
