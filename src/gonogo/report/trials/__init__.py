"""What takes many rehearsals, as reports show it: plans and cures."""
