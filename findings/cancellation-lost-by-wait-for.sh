#!/bin/sh
# One would guess: a task that is cancelled while it waits in asyncio.wait_for() gets CancelledError, whatever else
# happens meanwhile.
#
# What happens: up to Python 3.11, wait_for() returns the result where its awaitable ended in the same turn of the event
# loop as the cancellation, and the cancellation is lost: the task goes on (python/cpython#86296, mended in 3.12 by
# asyncio.timeout()). A supervisor that waits so for the end of a child and gets SIGTERM right then starts it again.
#
# Runs each of python3.9 to python3.14 that is there; exits with 77 without any. Fails if the behaviour has changed.
set -eu

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cat >"$home/cancel.py" <<'PYTHON'
import asyncio
import sys


async def wait(end):
    await asyncio.wait_for(end, timeout=60)
    return "lost"


async def main():
    end = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(wait(end))
    await asyncio.sleep(0)
    end.set_result(None)
    if not task.cancel():
        return "too late"
    try:
        return await task
    except asyncio.CancelledError:
        return "delivered"


print("%d.%d.%d %s" % (*sys.version_info[:3], asyncio.run(main())))
PYTHON

tried=0
changed=0
for minor in 9 10 11 12 13 14; do
    line=$("python3.$minor" -I "$home/cancel.py" 2>/dev/null) || continue
    tried=$((tried + 1))
    echo "Python ${line% *}: a cancellation right behind the result is ${line#* }"
    expected=delivered
    [ "$minor" -ge 12 ] || expected=lost
    [ "${line#* }" = "$expected" ] || changed=1
done
[ "$tried" -gt 0 ] || { echo "needs python3.9 to python3.14" >&2; exit 77; }
[ "$changed" = 0 ] || {
    echo "the behaviour has changed" >&2
    exit 1
}
