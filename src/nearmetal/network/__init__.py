"""Networks between instances, in network namespaces of their own. This package must not depend on backends.

This file must not import anything: that would delay the worker, a module of this package for which every run
waits."""
