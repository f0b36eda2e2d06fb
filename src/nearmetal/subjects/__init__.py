"""What is measured: kernels, programs, applications, and events of the instances themselves.

Each subject is one file with all that other packages need to know of it (`subjects/contract.py`). A subject
knows the node, its instances and the meters. It knows neither the plan nor the analysis.
"""
