"""``python -I -S FOLDER begin …`` is the first process of a world; ``… run …`` has it start a program, and waits."""

import os
import sys

if __name__ == "__main__":
    # Import this folder as a package of its own: nothing else of gonogo, and only after the standard library.
    folder = sys.path.pop(0)
    sys.path.append(os.path.dirname(folder))
    __package__ = os.path.basename(folder)
    if sys.argv[1] == "run":
        from .relay import main
    else:
        from .init import main
    main(sys.argv[2:])
