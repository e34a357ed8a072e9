"""The launchers, as their command lines tell: which is called, with which options, for which program.

Nothing of a launcher is imported or run: :mod:`gonogo.rehearse.launch.launchers` does that, where torch is installed.
"""

from gonogo.evidence.launch.launchers.recognise import Called, called

__all__ = ["Called", "called"]
