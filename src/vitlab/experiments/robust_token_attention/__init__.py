"""The tables and figures of "Robustifying Token Attention for Vision Transformers" (TAPADL)."""
