"""``gonogo server``: findings, hover, completion and fixes in editors, via the Language Server Protocol."""
