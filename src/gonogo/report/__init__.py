"""One renderer a format; knows only gonogo.finding."""
