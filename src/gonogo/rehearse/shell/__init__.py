"""A launch script, run by real bash as it stands, in a world of its own (``gonogo.confinement``).

Its commands really run: what they change is the world's. Held back is what would start the training, wait, or reach
for a network or another machine: the kernel tells of each program that is about to be started
(``interception.py``), and those named in ``commands.py`` are replaced by ``stand_in.py``, wherever they lie and
however they are called.
"""
