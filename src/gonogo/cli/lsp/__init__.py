"""``gonogo server``: findings, hover, completion and fixes in editors, by the Language Server Protocol."""
