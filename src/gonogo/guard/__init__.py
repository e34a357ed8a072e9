"""The guard of a live training: what `gonogo run` puts beside it, and what is made of the records."""
