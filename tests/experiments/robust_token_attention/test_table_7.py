"""TAPADL Table 7: see `by_name`."""

from experiments.robust_token_attention.by_name import example as example
