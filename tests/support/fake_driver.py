"""What torch says of NVIDIA GPUs and their driver, as a test sets it."""

from __future__ import annotations

import pytest


class FakeDriver:
    """GPUs of this computer, while a test runs; `fails` is what the driver raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.available, self.capability, self.fails, self.count = True, (9, 0), "", 1
        monkeypatch.setattr("torch.version.cuda", "13.0")
        monkeypatch.setattr("torch.cuda.is_available", lambda: self.available)
        monkeypatch.setattr("torch.cuda.device_count", lambda: self.count)
        monkeypatch.setattr("torch.cuda.get_device_name", self._name)
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda number: self.capability)

    def _name(self, number: int) -> str:
        if self.fails:
            raise RuntimeError(self.fails)
        return "NVIDIA H200"
