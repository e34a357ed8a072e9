"""What a program looks up and doesn't find."""
