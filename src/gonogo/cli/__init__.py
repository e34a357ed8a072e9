"""The commands. Each parses its options, calls one function and renders the result; nothing heavy is imported."""

import atexit
import gc

# What a command imports stays: collecting garbage after each 700 new objects takes a twentieth of a short command, and
# so does looking through all of it once more at its end.
gc.set_threshold(200_000, 10, 10)
atexit.register(gc.freeze)
