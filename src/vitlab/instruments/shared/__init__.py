"""Code shared by instruments. Modules in this package are not instruments themselves."""
