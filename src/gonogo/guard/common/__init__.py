"""What all parts of the guard in a rank share: its state, its faults, frames, and how memory is read."""
