"""Runs a launch script unchanged with the real bash, in a world of its own (``gonogo.confinement``).

Its commands really run, and their changes stay in that world. Programs that would start the training, wait, or need a
network or another machine are held back: the kernel reports each program that is about to be started
(``interception.py``), and those named in ``commands.py`` are replaced by ``stand_in.py``, whatever their path.
"""
