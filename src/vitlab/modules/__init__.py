"""Parts: token-mixing modules that go into a model, (B, N, D) -> (B, N, D).

A constructor asks for what a place in a model knows by parameter name, `dim`, `layout` or `attention`; everything else
is a setting with a default. `default_seam` says where a part goes when nobody says otherwise. Nothing is imported here:
`vitlab.core.plugins` reads the names from the files.
"""
