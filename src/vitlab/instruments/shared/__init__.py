"""What instruments share; `vitlab list instruments` shows none of these files."""
