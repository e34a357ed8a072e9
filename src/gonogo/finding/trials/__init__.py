"""What the commands report that need many rehearsals: bisect, cure, plan."""
