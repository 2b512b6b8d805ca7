"""A thread for calls that may hang for ever: the event loop goes on beside it, and the process leaves without it.

`ThreadPoolExecutor` won't do: the interpreter joins its threads at exit, however long they take.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class SideThread(Executor):
    """Makes the calls one behind the other, for `run_in_executor`; `shutdown` ends it behind the last one.

    A call that sits in the kernel and can't be killed (D state) holds the process all the same: no thread of any kind
    can be left behind by then.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._calls.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - Executor's own words
        """No call behind those already made; never waits for them."""
        self._calls.put(None)

    def _work(self) -> None:
        while (entry := self._calls.get()) is not None:
            future, call = entry
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it, as from any executor
                future.set_exception(error)
            else:
                future.set_result(result)
