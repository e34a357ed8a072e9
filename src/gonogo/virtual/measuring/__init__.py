"""The short rehearsals of ``gonogo plan``: the program, what is counted in it, and the process that forks them."""
