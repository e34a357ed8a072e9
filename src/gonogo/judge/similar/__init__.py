"""Public threads that look like a log whose cause is not certain."""
