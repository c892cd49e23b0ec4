"""Training: the loop (`loop.train`), its step, optimizer, state, and distributed execution."""
