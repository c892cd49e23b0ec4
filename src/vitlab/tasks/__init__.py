"""Tasks: each creates model, data, loss and metric for the training loop."""
