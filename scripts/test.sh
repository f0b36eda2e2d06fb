#!/bin/sh
# test.sh core|more: runs one part of the tests; tests/conftest.py says which tests each part contains. First, these run
# side by side: tests that compute, tests that boot emulated machines, and tests that measure nothing (marked "beside").
# Then tests that start instances and measure run alone on the machine.
set -u
cd "$(dirname "$0")/.."
part=$1
python=.venv/bin/python
said=$(mktemp -d)
lanes=
failed=0
# Created here, since each of the sessions side by side would otherwise remove the /run/netns that it has created.
mkdir /run/netns 2>/dev/null && made=/run/netns || made=

# lane NAME ARGUMENT...: starts a pytest session in the background, whose output is kept in a file.
lane() {
  name=$1
  shift
  "$python" -m pytest --part "$part" --durations 10 --durations-min 5 "$@" >"$said/$name" 2>&1 &
  lanes="$lanes $name:$!"
}

# pytest ends with status 5 if the part contains none of the session's tests.
check() {
  [ "$1" = 0 ] || [ "$1" = 5 ] || failed=1
}

tidy() {
  [ -n "$made" ] || return
  while umount "$made" 2>/dev/null; do :; done
  rmdir "$made" 2>/dev/null
  made=
}

ended() {
  for lane in $lanes; do kill "${lane#*:}" 2>/dev/null; done
  wait
  tidy
  rm -rf "$said"
}
trap ended EXIT
trap 'exit 130' INT TERM

echo "side by side: what computes, emulated machines, and what measures nothing"
begin=$(date +%s)
computing="tests/unit tests/attack tests/golden tests/statistical"
# Collecting thousands of tests takes a minute, and few of these belong to the other part.
[ "$part" = core ] || computing=$(grep -rl --include='*.py' 'mark\.more' $computing)
[ -z "$computing" ] || lane computing -n 2 --dist worksteal $computing
lane nested tests/nested
guests=tests/contract/test_guests_network.py
lane contract -m "beside and not alone" tests/contract --ignore $guests
lane guests -m "beside and not alone" $guests
# Two sessions, for a run holds the machine: one has much to do beside its runs.
images="tests/system/test_images.py tests/system/test_newer_suite.py tests/system/test_hpcc_runs.py"
lane images -m "beside and not alone" $images
lane system -m "beside and not alone" tests/system $(printf -- '--ignore %s ' $images)
for lane in $lanes; do
  wait "${lane#*:}"
  check $?
  lanes=${lanes#* "$lane"}
  cat "$said/${lane%:*}"
done
tidy
middle=$(date +%s)
"$python" -m pytest --part "$part" -m "alone or not beside" --durations 40 --durations-min 5 \
  tests/contract tests/system
check $?
grep -hE '^(FAILED|ERROR) ' "$said"/* # again, at the end
echo "part $part: $((middle - begin)) s side by side, $(($(date +%s) - middle)) s alone"
[ "$failed" = 0 ]
