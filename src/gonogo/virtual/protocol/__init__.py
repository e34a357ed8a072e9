"""The plan of a rank, and the messages that ranks exchange."""
