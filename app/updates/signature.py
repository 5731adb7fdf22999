"""Verifies Ed25519 signatures of descriptions of releases, as RFC 8032 defines them.

In plain Python, since no library that every system's app contains can do it: one verification takes
milliseconds. It handles public values alone, so its time need not be constant. Signing is the work of
`packaging/update_description.py`. Source: https://www.rfc-editor.org/rfc/rfc8032#section-5.1
"""

from __future__ import annotations

import hashlib

KEY_BYTES, SIGNATURE_BYTES = 32, 64
_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493  # of the base point
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)  # of -1

# A point (X, Y, Z, T) is x = X/Z, y = Y/Z, with x*y = T/Z.
_Point = tuple[int, int, int, int]


def is_signed(message: bytes, signature: bytes, key: bytes) -> bool:
    """Whether the owner of a public key signed this message."""
    if len(signature) != SIGNATURE_BYTES or len(key) != KEY_BYTES:
        return False
    public, point = _decoded(key), _decoded(signature[:32])
    factor = int.from_bytes(signature[32:], "little")
    if public is None or point is None or factor >= _ORDER:
        return False
    digest = hashlib.sha512(signature[:32] + key + message).digest()
    times = int.from_bytes(digest, "little") % _ORDER
    return _is_same(_multiplied(factor, _BASE), _added(point, _multiplied(times, public)))


def _decoded(data: bytes) -> _Point | None:
    """The point of an encoding (5.1.3); None: it is none, or not encoded in the one right way."""
    number = int.from_bytes(data, "little")
    y, is_odd = number & ~(1 << 255), number >> 255
    if y >= _P:
        return None
    above, below = (y * y - 1) % _P, (_D * y * y + 1) % _P
    x = above * pow(below, 3, _P) * pow(above * pow(below, 7, _P), (_P - 5) // 8, _P) % _P
    if (below * x * x + above) % _P == 0:
        x = x * _ROOT % _P
    if (below * x * x - above) % _P or (x == 0 and is_odd):
        return None
    if x % 2 != is_odd:
        x = _P - x
    return x, y, 1, x * y % _P


def _added(one: _Point, other: _Point) -> _Point:
    """The sum of two points (5.1.4)."""
    a = (one[1] - one[0]) * (other[1] - other[0]) % _P
    b = (one[1] + one[0]) * (other[1] + other[0]) % _P
    c = 2 * one[3] * other[3] * _D % _P
    d = 2 * one[2] * other[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _multiplied(times: int, point: _Point) -> _Point:
    found: _Point = (0, 1, 1, 0)
    while times:
        if times & 1:
            found = _added(found, point)
        point, times = _added(point, point), times >> 1
    return found


def _is_same(one: _Point, other: _Point) -> bool:
    x = (one[0] * other[2] - other[0] * one[2]) % _P
    y = (one[1] * other[2] - other[1] * one[2]) % _P
    return x == 0 and y == 0


def _base() -> _Point:
    """The point that keys are multiples of: y is 4/5, and x is even."""
    found = _decoded((4 * pow(5, -1, _P) % _P).to_bytes(32, "little"))
    assert found is not None
    return found


_BASE = _base()
