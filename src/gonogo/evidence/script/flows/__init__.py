"""What a program comes to: where a loss is made, what a loop does by its counter."""
