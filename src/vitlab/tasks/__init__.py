"""Tasks: each assembles model, data, objective and metric for the training loop."""
