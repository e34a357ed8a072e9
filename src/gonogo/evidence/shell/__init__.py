"""Analyses shell scripts without running them: which commands they run, with which words and which variables.

Whatever the files determine is evaluated: variables, defaults such as ``${X:-8}``, arrays, arithmetic, conditions,
functions. Everything else is unknown, with the reason. A script that is given no arguments is evaluated without any,
and a variable that it does not set counts as unset if the script has a default for that.
:func:`gonogo.evidence.shell.script_commands.read_shell` is the entry point.
"""
