"""Shell scripts, read without running them: which commands they run, with which words and which variables.

What the files settle is evaluated: variables, defaults such as ``${X:-8}``, arrays, arithmetic, conditions, functions.
What they don't settle is unknown, with the reason. A script that is given no arguments is read as it runs without any,
and a variable that it does not set is taken as unset where the script has a default for that.
:func:`gonogo.evidence.shell.script_commands.read_shell` reads one.
"""
