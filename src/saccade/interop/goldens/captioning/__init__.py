"""Goldens of captioners: what they attend to, say and learn from, with paired captions and without."""
