"""Signatures of descriptions: the vectors of RFC 8032, and what is refused."""

from __future__ import annotations

import hashlib

import pytest

from app.updates.signature import is_signed

# Public key, message and signature of RFC 8032, section 7.1.
VECTORS = {
    "1": (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b",
    ),
    "2": (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
        "387b2eaeb4302aeeb00d291612bb0c00",
    ),
    "3": (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
        "4a7c15e9716ed28dc027beceea1ec40a",
    ),
    "SHA(abc)": (
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        hashlib.sha512(b"abc").hexdigest(),
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e030"
        "3dca179c138ac17ad9bef1177331a704",
    ),
}
KEY, MESSAGE, SIGNATURE = (bytes.fromhex(text) for text in VECTORS["SHA(abc)"])
ORDER = 2**252 + 27742317777372353535851937790883648493


def changed(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS.keys())
def test_the_vectors_of_the_standard_are_signed(vector: tuple[str, str, str]) -> None:
    key, message, signature = map(bytes.fromhex, vector)
    assert is_signed(message, signature, key)


@pytest.mark.parametrize("place", [0, 31, 32, 63])
def test_a_changed_signature_is_refused(place: int) -> None:
    assert not is_signed(MESSAGE, changed(SIGNATURE, place), KEY)


@pytest.mark.parametrize("place", [0, 40, 63])
def test_a_changed_message_is_refused(place: int) -> None:
    assert not is_signed(changed(MESSAGE, place), SIGNATURE, KEY)


def test_another_key_is_refused() -> None:
    assert not is_signed(MESSAGE, SIGNATURE, bytes.fromhex(VECTORS["1"][0]))


@pytest.mark.parametrize("length", [0, 32, 63, 65])
def test_a_signature_of_another_length_is_refused(length: int) -> None:
    assert not is_signed(MESSAGE, (SIGNATURE + b"\0")[:length], KEY)


def test_a_second_form_of_a_signature_is_refused() -> None:
    """The factor plus the order of the base point satisfies the same equation."""
    factor = int.from_bytes(SIGNATURE[32:], "little") + ORDER
    assert not is_signed(MESSAGE, SIGNATURE[:32] + factor.to_bytes(32, "little"), KEY)


@pytest.mark.parametrize("number", [2, 2**255 - 19, 2**255 - 1, 1 + 2**255])
def test_a_key_that_is_no_point_is_refused(number: int) -> None:
    """No point has y = 2; the others are encodings that the standard does not allow."""
    assert not is_signed(MESSAGE, SIGNATURE, number.to_bytes(32, "little"))
