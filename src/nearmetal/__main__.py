"""python -m nearmetal: the command line."""

from .cli.app import main

main()
