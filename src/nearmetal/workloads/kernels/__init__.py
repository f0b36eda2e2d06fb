"""Our own kernels: each one file that says its keys, its metrics and its work, for the program nm-micro.

The programs themselves are in C (kernels/micro). This room knows no environment, no machine and no MPI.
"""
