"""A launch script, run for real by bash, with stand-ins in the place of all that would start or change something.

Its variables, conditions, loops, functions, arrays and nested scripts work because bash works them out. What the
script starts is taken down (:mod:`~gonogo.rehearse.shell.stand_in`), not started; what it writes lands in a folder of
the session (:mod:`~gonogo.rehearse.shell.rewrite` turns its redirections there); commands that gonogo doesn't know to
be harmless are not run, and the report says which.
"""
