"""Training: one function that reads from top to bottom (`loop.train`), and the few things it stands on."""
