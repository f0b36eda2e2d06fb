"""What a container or a virtual machine costs a workload, with a verdict that stays true.

`nearmetal.run`, `nearmetal.weigh`, `nearmetal.load`, `nearmetal.resume` and `nearmetal.check` are the
functions of nearmetal.api. They are imported when they are first used.
"""

__version__ = "0.1.0"

RESULTS = "results"
"""Default directory of results directories."""

_OF_API = frozenset({"check", "load", "resume", "run", "weigh"})

TYPE_CHECKING = False  # as in typing, which this package does not import
if TYPE_CHECKING:
    from .api import check as check
    from .api import load as load
    from .api import resume as resume
    from .api import run as run
    from .api import weigh as weigh
else:

    def __getattr__(name: str) -> object:
        if name not in _OF_API:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import api

        return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_OF_API})
