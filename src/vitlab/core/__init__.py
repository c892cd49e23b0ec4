"""Plain types and files. Importing this package, or anything in it, imports no torch."""
