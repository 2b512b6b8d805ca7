"""Decoding of raw mails: quoted-printable and base64, in parts with a head and in text without one.

Lines are bytes. Each decoded line keeps the number of the file's line in which it began, so that messages name lines
that a reader of the file can find.
"""

from __future__ import annotations

import base64
import binascii
import quopri
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

ENCODED = re.compile(
    rb"^content-transfer-encoding:[ \t]*(?:quoted-printable|base64)|=3D|[^=\n]=$|[ \t]=20$",
    re.MULTILINE | re.IGNORECASE,
)
"""A text without this pattern has no encoded line."""
LONGEST = 78
"""Bytes of the longest line: 76 by RFC 2045, section 6.7, and 78 of the email package of Python."""
SHORTEST = 60
"""Bytes of a line that an encoder breaks: it fills lines, so that a shorter one that ends in `=` is no evidence."""
FIELD = re.compile(rb"([A-Za-z][A-Za-z-]{0,40}):[ \t]*(.*)")
PARAMETER = re.compile(rb"(charset|boundary)=\"?([^\";\s]{1,200})", re.IGNORECASE)
STRAY = re.compile(rb"=(?![0-9A-F]{2}|$)", re.MULTILINE)
"""An equals sign that quoted-printable would have encoded."""
SIGN = re.compile(rb"=3D|=20$", re.MULTILINE)
"""Codes of encoders for `=`, and for a blank at the end of a line."""

CERTAIN = re.compile(rb"=3D|[ \t]=20\r?$", re.MULTILINE)
"""Codes that no program prints by chance, where nothing else is encoded: `rate=20` is none."""
UNLIKELY = re.compile(rb"=(?!3D|[89A-F][0-9A-F]|(?:20|09|)\r?$)", re.MULTILINE)
"""An equals sign that is no code of an encoder: not one for `=`, a blank at the end of a line, or a byte of UTF-8."""
LEAST = 2

REPEATED = b"repeated"
"""Kind of a part that repeats the text of another one."""


@dataclass(slots=True)
class Part:
    """Head of a mail, or of one of its parts."""

    encoding: bytes = b""
    kind: bytes = b"text/plain"
    charset: str = "utf-8"
    boundary: bytes = b""


@dataclass(slots=True)
class Decoder:
    """Lines that were decoded so far, with the number of each in the file."""

    lines: list[bytes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def add(self, line: bytes, number: int) -> None:
        """Add a line."""
        self.lines.append(line)
        self.numbers.append(number)

    def add_body(self, body: Sequence[tuple[int, bytes]], part: Part) -> None:
        """Add the lines of a part, decoded; those that can't be decoded as they are."""
        if part.kind == REPEATED:
            for number, _ in body:
                self.add(b"", number)
        elif part.encoding == b"quoted-printable":
            for number, line in logical_lines(body):
                self.add(recoded(quopri.decodestring(line), part.charset), number)
        elif part.encoding == b"base64" and part.kind.startswith(b"text/") and body:
            for line in base64_lines(body, part.charset):
                self.add(line, body[0][0])
        else:
            for number, line in body:
                self.add(line, number)


def decoded(raw: bytes) -> tuple[bytes, list[int]]:
    """Return a text with its mails decoded, and the number of each line in the file; no numbers if nothing changed."""
    if ENCODED.search(raw) is None:
        return raw, []
    lines = list(enumerate(raw.split(b"\n"), 1))
    decoder = Decoder()
    bare: list[tuple[int, bytes]] = []
    for part, body in parts(lines):
        if part is None:
            bare += body
            continue
        add_bare(decoder, bare)
        bare = []
        decoder.add_body(body, part)
    add_bare(decoder, bare)
    text = b"\n".join(decoder.lines)
    return (raw, []) if text == raw else (text, decoder.numbers)


def parts(lines: Sequence[tuple[int, bytes]]) -> Iterator[tuple[Part | None, list[tuple[int, bytes]]]]:
    """Yield the lines in order: those of an encoded body with its part, all others with None.

    The HTML of a mail that has plain text, too, repeats that text and is left out.
    """
    part: Part | None = None
    body: list[tuple[int, bytes]] = []
    paragraph: list[bytes] = []
    boundaries = set[bytes]()
    has_plain = False
    begun = 0  # where the present paragraph begins in the body
    for number, line in lines:
        is_end = line.startswith(b"From ") or (line.startswith(b"--") and line[2:].rstrip(b"- \r") in boundaries)
        if is_end and part is not None:
            yield part, body
            part, body, begun = None, [], 0
        has_plain &= not line.startswith(b"From ")
        if part is None:
            yield None, [(number, line)]
        else:
            body.append((number, line))
        if line.strip():
            paragraph.append(line)
            continue
        head, paragraph = head_of(paragraph), []
        if head is None:
            begun = len(body)
            continue
        if part is not None:  # the head of another mail: the one before had no end
            yield part, body[:begun]
            yield None, body[begun:]
            body = []
        begun = 0
        boundaries |= {head.boundary} - {b""}
        if head.kind == b"text/html" and has_plain:
            part = Part(kind=REPEATED)
        elif head.boundary:
            part = None
        else:
            part = head
            has_plain |= head.kind == b"text/plain"
    if part is not None:
        yield part, body


def head_of(paragraph: Sequence[bytes]) -> Part | None:
    """Return the part that a paragraph is the head of; None for any other paragraph."""
    part = Part()
    is_head = False
    for line in paragraph:
        named = FIELD.fullmatch(line.rstrip(b"\r"))
        name = named[1].lower() if named else b""
        value = named[2].strip().lower() if named else b""
        if name == b"content-transfer-encoding":
            part.encoding, is_head = value, True
        elif name == b"content-type":
            part.kind, is_head = value.partition(b";")[0].strip(), True
        for parameter in PARAMETER.finditer(line):
            if parameter[1].lower() == b"charset":
                part.charset = parameter[2].decode("ascii", "replace")
            else:
                part.boundary = parameter[2]
    return part if is_head else None


def add_bare(decoder: Decoder, lines: Sequence[tuple[int, bytes]]) -> None:
    """Add lines without a mail's head: paragraphs that are quoted-printable by their own signs are decoded.

    A text such as `iodepth=32` has the letters of an encoded character, so that a broken line is required somewhere, or
    several codes without any other equals sign in the whole text.
    """
    paragraphs: list[list[tuple[int, bytes]]] = [[]]
    for number, line in lines:
        if not line.strip():
            paragraphs.append([])
        paragraphs[-1].append((number, line))
    texts = [b"\n".join(line.rstrip(b"\r") for _, line in paragraph) for paragraph in paragraphs]
    whole = b"\n".join(texts)
    is_mail = any(has_broken_line(text) for text in texts) or has_only_codes(whole)
    for paragraph, text in zip(paragraphs, texts, strict=True):
        has_signs = SIGN.search(text) is not None or has_broken_line(text)
        is_encoded = is_mail and has_signs and STRAY.search(text) is None
        decoder.add_body(paragraph, Part(b"quoted-printable" if is_encoded else b""))


def has_only_codes(text: bytes) -> bool:
    """Return whether each equals sign of a text is a code of an encoder, and several are certain."""
    is_certain = len(CERTAIN.findall(text)) >= LEAST or b" =3D " in text
    return is_certain and UNLIKELY.search(text) is None


def has_broken_line(text: bytes) -> bool:
    """Return whether a paragraph is quoted-printable: it has a line that an encoder broke, and no other `=`."""
    lines = text.split(b"\n")
    if STRAY.search(text) is not None or max(map(len, lines)) > LONGEST:
        return False
    return any(line.endswith(b"=") and len(line) >= SHORTEST for line in lines[:-1])


def logical_lines(body: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield lines with their continuations (RFC 2045: `=` at the end), each with the number of its first one."""
    begun, text = 0, b""
    for number, line in body:
        begun = begun or number
        text += line.rstrip(b" \t\r")
        if text.endswith(b"="):
            text = text[:-1]
            continue
        yield begun, text
        begun, text = 0, b""
    if begun:
        yield begun, text


def base64_lines(body: Sequence[tuple[int, bytes]], charset: str) -> list[bytes]:
    """Return the decoded lines of a base64 body; the lines themselves if they are none."""
    lines = [line for _, line in body]
    try:
        raw = base64.b64decode(b"".join(line.strip() for line in lines), validate=True)
    except binascii.Error:
        return lines
    return recoded(raw, charset).replace(b"\r\n", b"\n").split(b"\n")


def recoded(raw: bytes, charset: str) -> bytes:
    """Return text in UTF-8; as it is where its charset is not known."""
    try:
        return raw.decode(charset, "replace").encode()
    except LookupError:
        return raw
