"""The texts of ``--help`` and of ``gonogo`` without arguments."""
