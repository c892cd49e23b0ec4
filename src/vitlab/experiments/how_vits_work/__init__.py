"""The tables and figures of "How Do Vision Transformers Work?" (HDVW)."""
