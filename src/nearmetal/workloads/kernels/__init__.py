"""The built-in kernels. Each has one file that defines its keys, its metrics and its work, for the program
nm-micro.

The programs themselves are written in C (kernels/micro). This package knows no environment, no machine and no
MPI."""
