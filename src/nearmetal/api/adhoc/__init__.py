"""Studies that are made from a command line or from other studies. This package must not run them."""
