"""Kernel BTF small enough to read: types by name, in the format of Documentation/bpf/btf.rst."""

import struct

INT, PTR, ARRAY, STRUCT, ENUM, TYPEDEF = 1, 2, 3, 4, 6, 8
FUNC, FUNC_PROTO, VAR, DATASEC, TAG, ENUM64 = 12, 13, 14, 15, 17, 19


class Btf:
    """Types are added in order; each answers with its id."""

    def __init__(self):
        self.strings = bytearray(b"\0")
        self.types = bytearray()
        self.count = 0

    def name(self, text):
        if not text:
            return 0
        at = len(self.strings)
        self.strings += text.encode() + b"\0"
        return at

    def add(self, kind, name="", target=0, rows=0, more=()):
        self.types += struct.pack("<III", self.name(name), kind << 24 | rows, target)
        self.types += struct.pack(f"<{len(more)}I", *more)
        self.count += 1
        return self.count

    def function(self, *arguments):
        more = [word for name, kind in arguments for word in (self.name(name), kind)]
        return self.add(FUNC_PROTO, rows=len(arguments), more=more)

    def tracepoint(self, name, *arguments):
        """Add a type like the kernel's DEFINE_BPF_TRACE: a typedef to a pointer to void (*)(void *, ...)."""
        function = self.function(("__data", 0), *arguments)
        return self.add(TYPEDEF, f"btf_trace_{name}", self.add(PTR, target=function))

    def blob(self):
        header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self.types), len(self.types), len(self.strings))
        return header + bytes(self.types) + bytes(self.strings)


def kernel(*issue):
    """A kernel whose block_rq_issue takes these: ("rq",) since 5.11, ("q", "rq") before; with one type of each kind."""
    btf = Btf()
    btf.add(INT, "int", 4, more=(32,))
    btf.add(ARRAY, more=(1, 1, 10))
    request = btf.add(STRUCT, "request", 8, rows=2, more=(btf.name("q"), 1, 0, btf.name("rq_disk"), 1, 32))
    btf.add(ENUM, "req_op", 4, rows=2, more=(btf.name("REQ_OP_READ"), 0, btf.name("REQ_OP_WRITE"), 1))
    btf.add(ENUM64, "large", 8, rows=1, more=(btf.name("LARGE"), 0, 1))
    btf.add(FUNC, "blk_mq_start_request", 1, rows=2)  # here the number is the linkage, not a count of rows
    btf.add(VAR, "jiffies", 1, more=(1,))
    btf.add(DATASEC, ".data", 8, rows=1, more=(7, 0, 8))
    btf.add(TAG, "user", 1, more=(0xFFFFFFFF,))
    pointer = btf.add(PTR, target=request)
    btf.add(TYPEDEF, "btf_trace_block_rq", pointer)
    btf.tracepoint("block_rq_issue", *((name, pointer) for name in issue))
    btf.tracepoint("block_rq_complete", ("rq", pointer), ("error", 1), ("nr_bytes", 1))
    return btf.blob()
