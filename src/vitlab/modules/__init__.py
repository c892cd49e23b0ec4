"""Parts: token-mixing modules that are inserted into a model, (B, N, D) -> (B, N, D).

Constructor parameters named `dim`, `layout` or `attention` are filled in from the model; all others are settings with
defaults. `default_seam` is the default position of a part. Nothing is imported here: `vitlab.core.plugins` reads the
names from the files.
"""
