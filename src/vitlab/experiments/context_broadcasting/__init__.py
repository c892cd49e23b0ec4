"""The tables and figures of "Scratching Visual Transformer's Back with Uniform Attention" (CB)."""
