"""How reports show results of several rehearsals or releases: plans, cures, what a model proposed."""
