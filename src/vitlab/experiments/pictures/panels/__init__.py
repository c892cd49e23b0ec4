"""The panels of HDVW's figures: a file for each kind, and `figure.py`, which puts them into rows."""
