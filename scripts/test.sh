#!/bin/sh
# All tests. First those that only compute, beside those that boot emulated machines; then, alone on the machine,
# those that start instances and measure.
set -u
cd "$(dirname "$0")/.."
python=.venv/bin/python
said=$(mktemp)
"$python" -m pytest tests/nested >"$said" 2>&1 &
nested=$!
trap 'kill "$nested" 2>/dev/null; rm -f "$said"' EXIT
trap 'exit 130' INT TERM
"$python" -m pytest -n 2 --dist worksteal tests/unit tests/golden tests/statistical
computing=$?
wait "$nested"
booting=$?
cat "$said"
"$python" -m pytest tests/contract tests/system
measuring=$?
[ "$computing" = 0 ] && [ "$booting" = 0 ] && [ "$measuring" = 0 ]
