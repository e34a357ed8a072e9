"""What a launch command comes to, by the launcher's own code."""
