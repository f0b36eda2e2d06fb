"""Networks between instances, in network namespaces of their own. This package knows no environment.

This file must not import anything: every run waits for the start of the worker, which is a module of this
package."""
