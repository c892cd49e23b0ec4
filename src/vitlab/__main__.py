"""`python -m vitlab`."""

from vitlab.cli import main

main()
