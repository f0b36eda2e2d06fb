"""Altair, for users without a home directory too: it asks for one when it is imported, and never uses it
here."""

import os

_LACKING = "HOME" not in os.environ
if _LACKING:
    os.environ["HOME"] = "/"
import altair as alt  # noqa: E402 (after HOME is set)

if _LACKING:
    del os.environ["HOME"]

__all__ = ["alt"]
