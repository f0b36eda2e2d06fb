"""The subjects of a measurement: kernels, programs, applications, and events of the instances themselves.

Each subject is one file with everything that other packages need to know about it (`subjects/contract.py`). A
subject knows the node, its instances and the meters. It knows neither the plan nor the analysis."""
