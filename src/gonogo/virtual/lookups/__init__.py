"""What a program looks for: reported to the rehearsal's watch, and taken down where it is not there."""
