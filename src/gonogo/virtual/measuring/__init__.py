"""The short rehearsals of ``gonogo plan``: the program, what is measured, and the server process that forks them."""
