"""A signed description of version 0.2.0, made with `openssl pkeyutl` and the first key of RFC 8032."""

from __future__ import annotations

KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
TEXT = '{"format": "tokonoma release", "version": "0.2.0", "notes": "Neu für alle."}'
SIGNATURE = (
    "798c822325d685c253e286678a04375952494e8e74a50a7a5327116f8751ed20"
    "b73ba1df8ad95b9032eff6eee946c88e928b443eda5ce77c02e69d5eaf01b60c"
)
SIGNED = {"format": "tokonoma release", "signed": TEXT, "signature": SIGNATURE}
