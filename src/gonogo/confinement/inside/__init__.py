"""What a world is made by. Run as ``python -I -S FOLDER``: see ``__main__.py``, and ``kernel.py`` on imports."""
