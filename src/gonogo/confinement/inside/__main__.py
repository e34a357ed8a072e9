"""``python -I -S FOLDER begin …``: the first process of a world; ``… run …``: has it start a program, and stays with it."""

import sys

if __name__ == "__main__":
    if sys.argv[1] == "run":
        from relay import main
    else:
        from first import main
    main(sys.argv[2:])
