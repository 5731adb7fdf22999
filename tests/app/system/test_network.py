"""Addresses of this computer."""

from __future__ import annotations

import ipaddress

from PySide6.QtWidgets import QApplication

from app.system.network import own_addresses


def test_they_are_ones_that_other_devices_can_use(qapp: QApplication) -> None:
    found = [ipaddress.IPv4Address(each) for each in own_addresses()]
    assert not any(each.is_loopback or each.is_link_local for each in found)
    assert [each.is_private for each in found] == sorted(
        (each.is_private for each in found), reverse=True
    )
