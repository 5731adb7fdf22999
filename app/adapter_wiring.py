"""Connects what the panel of adapters says with what is done about it; neither knows the other."""

from __future__ import annotations

from app.adapters import Adapters
from app.ui.adapter_panel import AdapterPanel


def connect_adapters(panel: AdapterPanel, adapters: Adapters) -> None:
    """Wire every intent of the panel."""
    panel.opened.connect(adapters.find)
    panel.added.connect(adapters.add)
    panel.removed.connect(adapters.remove)
    panel.cleared.connect(adapters.clear)
    panel.switched.connect(adapters.set_on)
    panel.strength_changed.connect(adapters.set_strength)
    panel.strength_settled.connect(adapters.settle)
    panel.moved.connect(adapters.move)
    panel.mix_saved.connect(adapters.save_mix)
    panel.mix_chosen.connect(adapters.apply_mix)
    panel.mix_deleted.connect(adapters.delete_mix)
