"""Data sets: the generated scenes and readers for real data sets."""
