"""What stress tests share; `vitlab list stress` shows none of these files."""
