"""Formats of strings that are enforced, as patterns; all others are annotations."""

from __future__ import annotations

_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_YEAR = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP_YEAR = (
    r"(?:(?:[1-9][0-9]|0[1-9])(?:0[48]|[2468][048]|[13579][26])|000[48]"
    r"|00(?:[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
)
_DATE = rf"(?:{_YEAR}-{_DAY}|{_LEAP_YEAR}-02-29)"
_TIME = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
    r"(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_CLOCK = r"T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)"
_SPAN = r"(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"(?:{_BYTE}\.){{3}}{_BYTE}"
_HEX = r"[0-9a-fA-F]{1,4}"
_WORD = r"[a-zA-Z0-9!#$%&'*+\-/=?^_`{|}~]+"
_PART = r"(?:[a-zA-Z0-9\-._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})"


def _ipv6() -> str:
    """Eight groups, or fewer with one gap."""
    forms = [rf"(?:{_HEX}:){{7}}{_HEX}"]
    for before in range(8):
        head = rf"{_HEX}(?::{_HEX}){{0,{before - 1}}}" if before else ""
        after = 7 - before
        tail = rf"(?:{_HEX}(?::{_HEX}){{0,{after - 1}}})?" if after else ""
        forms.append(f"{head}::{tail}")
    return f"(?:{'|'.join(forms)})"


PATTERNS = {
    name: f"^(?:{pattern})$"
    for name, pattern in {
        "date-time": rf"{_DATE}[tT]{_TIME}",
        "date": _DATE,
        "time": _TIME,
        "duration": rf"P(?:{_SPAN}(?:{_CLOCK})?|{_CLOCK}|[0-9]{{1,9}}W)",
        "email": rf"{_WORD}(?:\.{_WORD})*@{_HOST}",
        "hostname": _HOST,
        "ipv4": _IPV4,
        "ipv6": _ipv6(),
        "uuid": r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
        "uri": (
            rf"[a-zA-Z][a-zA-Z0-9+\-.]*:(?://(?:[a-zA-Z0-9\-._~%!$&'()*+,;=:]*@)?"
            rf"(?:\[{_ipv6()}\]|{_HOST})(?::[0-9]{{1,5}})?(?:/{_PART}*)*|/?{_PART}+(?:/{_PART}*)*)"
            rf"(?:\?(?:{_PART}|[/?])*)?(?:#(?:{_PART}|[/?])*)?"
        ),
    }.items()
}
