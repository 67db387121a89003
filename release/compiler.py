"""Compiles modules: sources by path on stdin, bytecode by path on stdout. The image's own Python runs it, as a script.

The bytecode is never checked, since no file of an image changes, and in marshal's version without references, whose
bytes depend on nothing else.
"""

from __future__ import annotations

import importlib.util
import marshal
import sys


def compiled(path: str, source: bytes) -> bytes:
    """Bytecode of one module; none of what is no module (templates, tests of broken files)."""
    try:
        code = compile(source, f"/{path}", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return b""
    unchecked = (1).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source) + marshal.dumps(code, 2)


if __name__ == "__main__":
    sources: dict[str, bytes] = marshal.loads(sys.stdin.buffer.read())
    sys.stdout.buffer.write(marshal.dumps({path: compiled(path, source) for path, source in sources.items()}, 2))
