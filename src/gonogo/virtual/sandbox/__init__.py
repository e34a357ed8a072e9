"""The program's view of files, network and processes: it may do what it likes, and nothing of the user's changes."""
