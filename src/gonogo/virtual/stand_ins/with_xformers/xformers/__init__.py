"""xFormers' Python for a machine that has no xFormers; found last, and only on virtual accelerators.

Its attention is written out, with the masks, as of xFormers 0.0.33; what else it has can be imported, and says that it
is not rehearsed when it is used.
"""

__version__ = "0.0.33"
