"""Sandboxes for untrusted programs: launch scripts, launchers' own code, ranks, builds of packages.

:class:`~gonogo.confinement.confinement.Confinement` makes sandboxes, called worlds (``world.py``), by the best means
that the kernel offers. docs/confinement.md says what each means protects against and what it doesn't;
``tests/confinement`` tests it.
"""
