"""One virtual rank as a process: its plan, its session around the program, its record."""
