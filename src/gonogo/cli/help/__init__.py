"""What ``--help`` says, and ``gonogo`` alone."""
