"""``gonogo cure``: from NO-GO to the least change that is proven GO, by rehearsals of a copy."""
