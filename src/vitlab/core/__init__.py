"""Plain data types and file formats. No module of this package imports torch."""
