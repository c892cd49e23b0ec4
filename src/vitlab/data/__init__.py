"""Data sets: the embedded scenes, and readers of the real ones."""
