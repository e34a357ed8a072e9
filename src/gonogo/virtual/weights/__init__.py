"""Loading and saving weights without their bytes: see readers.py for loading, saving.py for saving."""
