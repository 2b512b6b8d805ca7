"""TLS and passwords of the exporter, from a file in the format that Prometheus' exporters share.

exporter-toolkit, docs/web-configuration.md.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from latmon.support import strict_yaml, trust
from latmon.support.errors import UnavailableError, UsageError
from latmon.support.text import clean

_CLIENTS = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_TLS, _USERS = "tls_server_config", "basic_auth_users"
_HASH = re.compile(r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}")
"""A bcrypt hash: version, cost, 22 characters of salt and 31 of the hash."""
_TLS_KEYS = ("cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version")


@dataclass(frozen=True, slots=True)
class WebConfig:
    """Contents of the file of --web-config: TLS, and user -> bcrypt hash of the password."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> WebConfig:
        """Read a file. Raises UsageError with file and key, UntrustedError where root would obey another user's."""
        if os.geteuid() == 0:
            trust.require_path(path, f"--web-config {path}", "let root own it")
        try:
            values = strict_yaml.parse(path, path.read_bytes())
        except OSError as error:
            raise UsageError(f"--web-config {path}: {error.strerror}") from None
        if not isinstance(values, dict) or (unknown := [value for value in values if value not in (_TLS, _USERS)]):
            what = f"unknown key {unknown[0]!r}" if isinstance(values, dict) else "expected keys"
            raise UsageError(f"--web-config {path}: {what}; the keys are {_TLS} and {_USERS}")
        return cls(_tls(path, values.get(_TLS)), _users(path, values.get(_USERS)))


def _tls(path: Path, values: Any) -> ssl.SSLContext | None:
    if values is None:
        return None
    where = f"--web-config {path}: {_TLS}"
    texts = values if isinstance(values, dict) else {}
    if not texts or (unknown := [key for key in texts if key not in _TLS_KEYS or not isinstance(texts[key], str)]):
        named = f"unknown key or value {unknown[0]!r}" if texts else "expected keys"
        raise UsageError(f"{where}: {named}; the keys are {', '.join(_TLS_KEYS)}, each a text")
    files = {key: path.parent / texts[key] for key in ("cert_file", "key_file", "client_ca_file") if key in texts}
    clients, least = texts.get("client_auth_type", "NoClientCert"), texts.get("min_version", "TLS12")
    for key, value, known in (("client_auth_type", clients, _CLIENTS), ("min_version", least, _VERSIONS)):
        if value not in known:
            raise UsageError(f"{where}: {key}: {value!r} is not one of {', '.join(known)}")
    if not {"cert_file", "key_file"} <= files.keys():
        raise UsageError(f"{where}: cert_file and key_file belong together")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[least]
    try:
        context.load_cert_chain(files["cert_file"], files["key_file"])
        if "client_ca_file" in files:
            context.load_verify_locations(files["client_ca_file"])
    except OSError as error:  # ssl.SSLError is one
        names = ", ".join(map(str, files.values()))
        raise UsageError(f"{where}: {names}: {clean(error.strerror or str(error), 200)}") from None
    context.verify_mode = _CLIENTS[clients]
    return context


def _users(path: Path, values: Any) -> Mapping[str, bytes]:
    where = f"--web-config {path}: {_USERS}"
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(word, str) for pair in values.items() for word in pair):
        raise UsageError(f"{where}: expected names with bcrypt hashes of their passwords")
    users = {name: text.encode() for name, text in values.items()}
    if users:
        for name, text in values.items():
            if not _is_hash(text, where):
                raise UsageError(
                    f"{where}: {clean(name, 80)}: no bcrypt hash: it has 60 characters from $2 on (htpasswd -nB NAME)"
                )
    return users


def _is_hash(text: str, where: str) -> bool:
    """Return whether bcrypt can compare a password with this; it accepts a truncated hash, which no password has."""
    if not _HASH.fullmatch(text):
        return False
    try:
        bcrypt_module(where).checkpw(b"", text.encode())
    except ValueError:
        return False
    return True


def bcrypt_module(where: str) -> Any:
    """Return the package bcrypt; UnavailableError where it isn't installed. `where`: what needs it."""
    try:
        return import_module("bcrypt")
    except ImportError:
        raise UnavailableError(f"{where}: passwords need the package bcrypt: pip install 'latmon[auth]'") from None
