"""Puts the output of nearmetal.study_file.explain() into docs/study-file.md, where a test wants it."""

import re
from pathlib import Path

from nearmetal.study_file import explain

DOCS = Path(__file__).parents[1] / "docs" / "study-file.md"
BLOCK = re.compile(r"(<!-- nearmetal init --explain -->\n```text\n).*?(```\n<!-- end -->)", re.DOTALL)

text = DOCS.read_text(encoding="utf-8")
DOCS.write_text(BLOCK.sub(lambda m: m[1] + explain() + m[2], text), encoding="utf-8")
