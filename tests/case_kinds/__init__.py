"""Small projects of the kinds at which strangers' launches were once judged wrongly, each with what is true of it.

The truth was argued before gonogo was run on them: ``why`` says it. ``check -- COMMAND`` is asked; ``python
benchmarks/case_kinds.py`` prints what it says of each.
"""

from __future__ import annotations

from case_kinds import arguments, launches, modules, versions

CASES = (*launches.CASES, *arguments.CASES, *modules.CASES, *versions.CASES)
