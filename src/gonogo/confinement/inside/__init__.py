"""The code that sets up a world, run as ``python -I -S FOLDER``: see ``__main__.py``; on imports, ``kernel.py``."""
