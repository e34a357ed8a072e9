"""How other packages are patched, at once or when they are imported, and put back."""
