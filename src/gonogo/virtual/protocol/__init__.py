"""What a rank is told to do, and the messages that ranks exchange."""
