"""Code shared by the applications hpcc and hpl: input files, output, and libraries of linear algebra.

This package must not know how an application is started.
"""
