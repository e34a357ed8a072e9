"""How the ranks are started."""
