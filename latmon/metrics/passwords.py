"""User names and passwords of the exporter's clients.

A bcrypt hash is slow on purpose, so that wrong passwords must neither take much of a CPU nor keep right ones away:

- A pair that was right is recognised without a hash, and never waits.
- One thread hashes, within a budget of CPU time that wrong passwords use up and time refills. An address that sent
  wrong ones before may use half of it: a first password finds the other half. No other thread is held up.
- Few attempts wait, over all addresses. Beyond that one of an address that sent most wrong passwords is not checked,
  and it is also hashed last.

An attacker with very many addresses can still use all of it, so that a first password has to be tried again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import threading
import time
from collections.abc import Mapping
from enum import Enum

from latmon.metrics.web_config import bcrypt_module

_SHARE, _BUDGET_S = 0.1, 2.0
"""Share of a CPU that wrong passwords may take, and the CPU time that they may take at once after a quiet time: at the
cost 12 of bcrypt a hash takes 0.3 s."""
_LOOK_S = 0.1
"""Time between two looks whether the budget is refilled."""
_MAX_WAITING = 4
"""Attempts that wait for their hash: with a hash of 50 ms each is decided within the time of a request."""
_MAX_ADDRESSES = 1_024
"""Addresses whose wrong passwords are counted; beyond that those counted first are forgotten."""
_END_S = 5.0
"""Longest time that the end waits for a hash."""


class Verdict(Enum):
    """Result of an attempt."""

    RIGHT = "right"
    WRONG = "wrong"
    UNCHECKED = "unchecked"
    """Too many attempts waited, or the connection ended."""


class Attempt:
    """User name and password of a request."""

    def __init__(self, address: str, user: str = "", password: str = "") -> None:
        self.address, self.user, self.password = address, user, password
        self._verdict = Verdict.UNCHECKED
        self._deciding = threading.Lock()
        self._decided = threading.Event()

    @property
    def is_decided(self) -> bool:
        """Return whether there is a verdict, or none is wanted any more."""
        return self._decided.is_set()

    def decide(self, verdict: Verdict) -> None:
        """Set the verdict; the first one stays."""
        with self._deciding:
            if not self.is_decided:
                self._verdict = verdict
                self._decided.set()

    def verdict(self, timeout_s: float) -> Verdict:
        """Wait for the verdict and return it; after `timeout_s` it is UNCHECKED."""
        if not self._decided.wait(timeout_s):
            self.decide(Verdict.UNCHECKED)
        return self._verdict


class Passwords:
    """Check of user names and passwords. `users`: user -> bcrypt hash of the password; empty: everybody is right."""

    def __init__(self, users: Mapping[str, bytes]) -> None:
        self._users = users
        self._key = os.urandom(32)
        self._right: set[bytes] = set()
        """Keyed hashes of the pairs that were right."""
        self._wrong: dict[str, int] = {}
        """Address -> its wrong passwords since the last right one."""
        self._waiting: list[Attempt] = []
        self._budget_s, self._refilled_s = _BUDGET_S, time.monotonic()
        self._changed = threading.Condition()
        """Guards what is above, and wakes the thread that hashes."""
        self._closing = threading.Event()
        self._hasher = threading.Thread(target=self._check_attempts, name="passwords", daemon=True)
        if users:
            self._hasher.start()

    def begin_attempt(self, header: str, address: str = "") -> Attempt:
        """Return the attempt of a request with this header Authorization; it may be undecided yet."""
        attempt = _parsed(header, address)
        if not self._users:
            attempt.decide(Verdict.RIGHT)
        elif not attempt.user and not attempt.password:
            attempt.decide(Verdict.WRONG)
        elif self._fingerprint(attempt) in self._right:
            attempt.decide(Verdict.RIGHT)
        else:
            self._let_wait(attempt)
        return attempt

    def close(self) -> None:
        """End the thread that hashes.

        A daemon thread inside of bcrypt ends a process with SIGABRT when the interpreter is finalized meanwhile.
        """
        self._closing.set()
        with self._changed:
            self._changed.notify()
        if self._hasher.is_alive():
            self._hasher.join(_END_S)

    def _let_wait(self, attempt: Attempt) -> None:
        with self._changed:
            self._waiting = [waiting for waiting in self._waiting if not waiting.is_decided]
            self._waiting.append(attempt)
            if len(self._waiting) > _MAX_WAITING:
                highest = max(map(self._wrong_passwords, self._waiting))
                # By chance: who comes more often gets no place more surely.
                left_out = secrets.choice([a for a in self._waiting if self._wrong_passwords(a) == highest])
                self._waiting.remove(left_out)
                left_out.decide(Verdict.UNCHECKED)
            self._changed.notify()

    def _check_attempts(self) -> None:
        while (attempt := self._next_attempt()) is not None:
            begun_s = time.thread_time()
            try:
                is_right = self._is_right(attempt)
            except MemoryError:  # this thread must go on
                attempt.decide(Verdict.UNCHECKED)
                continue
            self._note(attempt, time.thread_time() - begun_s, is_right=is_right)
            attempt.decide(Verdict.RIGHT if is_right else Verdict.WRONG)

    def _next_attempt(self) -> Attempt | None:
        """Wait for an attempt that the budget allows, and take it; None at the end."""
        with self._changed:
            while not self._closing.is_set():
                self._waiting = [waiting for waiting in self._waiting if not waiting.is_decided]
                attempt = min(self._waiting, key=self._wrong_passwords, default=None)
                if attempt is not None and self._has_budget(attempt):
                    self._waiting.remove(attempt)
                    return attempt
                self._changed.wait(None if attempt is None else _LOOK_S)
        return None

    def _has_budget(self, attempt: Attempt) -> bool:
        now_s = time.monotonic()
        self._budget_s = min(_BUDGET_S, self._budget_s + _SHARE * (now_s - self._refilled_s))
        self._refilled_s = now_s
        reserve_s = _BUDGET_S / 2 if self._wrong_passwords(attempt) else 0.0
        return self._budget_s > reserve_s

    def _is_right(self, attempt: Attempt) -> bool:
        # An unknown user takes as long as a known one.
        expected = self._users.get(attempt.user) or next(iter(self._users.values()))
        bcrypt = bcrypt_module("basic_auth_users")
        try:
            is_equal = bcrypt.checkpw(attempt.password.encode()[:72], expected)
        except ValueError:  # a NUL byte, before bcrypt 4.0
            return False
        return bool(is_equal) and attempt.user in self._users

    def _note(self, attempt: Attempt, took_s: float, *, is_right: bool) -> None:
        with self._changed:
            count = self._wrong.pop(attempt.address, 0)
            if is_right:
                self._right.add(self._fingerprint(attempt))
                return
            self._budget_s -= took_s
            self._wrong[attempt.address] = count + 1
            if len(self._wrong) > _MAX_ADDRESSES:
                del self._wrong[next(iter(self._wrong))]

    def _wrong_passwords(self, attempt: Attempt) -> int:
        return self._wrong.get(attempt.address, 0)

    def _fingerprint(self, attempt: Attempt) -> bytes:
        return hmac.digest(self._key, f"{attempt.user}\0{attempt.password}".encode(), hashlib.sha256)


def _parsed(header: str, address: str) -> Attempt:
    """Return the attempt of a header (RFC 7617); without user and password where it has none."""
    kind, _, coded = header.partition(" ")
    try:
        user, colon, password = base64.b64decode(coded, validate=True).decode().partition(":")
    except ValueError:  # also binascii.Error and UnicodeDecodeError
        return Attempt(address)
    if kind.lower() != "basic" or not colon:
        return Attempt(address)
    return Attempt(address, user, password)
