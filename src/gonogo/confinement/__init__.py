"""Where strangers' programs run: launch scripts, launchers' own code, ranks, builds of packages.

:class:`~gonogo.confinement.confinement.Confinement` makes worlds (``world.py``) by the best means that the kernel
offers. What each means keeps from a program, and what not, is in docs/confinement.md; ``tests/confinement`` holds it.
"""
