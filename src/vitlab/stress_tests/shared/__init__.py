"""Code shared by several stress tests. Files here have no `CARD`, so `vitlab list stress` omits them."""
