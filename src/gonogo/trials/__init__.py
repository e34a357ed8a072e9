"""The commands that rehearse repeatedly, such as to find a strategy that fits or the release that broke a run."""
