"""What takes rehearsals or other releases, as reports show it: plans, cures, what a model proposed."""
