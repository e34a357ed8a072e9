"""``python -m gonogo``: the same as ``gonogo``."""

from gonogo.cli.app import main

if __name__ == "__main__":
    main()
