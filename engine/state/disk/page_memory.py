"""Bytes of pages in memory, to be written to files and read from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from engine.state.pages import Page, PagePool


@dataclass(eq=False, slots=True)
class HeldPage:
    """A page that is being saved."""

    pool: PagePool
    pages: tuple[Page | None, ...]  # one for each group; referenced until `release`
    held: Sequence[bool] = field(init=False)

    def __post_init__(self) -> None:
        self.held = [page is not None for page in self.pages]

    def parts(self) -> list[memoryview | None]:
        """The bytes of each group."""
        return [None if page is None else page_bytes(page) for page in self.pages]

    def release(self) -> None:
        """Drop the references."""
        pages, self.pages = self.pages, ()
        for page in pages:
            if page is not None:
                self.pool.release(page)


def page_bytes(page: Page) -> memoryview:
    """The contents of a page: its memory, or a copy in that of the host."""
    return _view(page.data.cpu())


class PageTarget:
    """Memory of the host to read the contents of a page into: the page itself if it is there."""

    def __init__(self, page: Page) -> None:
        self._page = page.data
        self._host = (
            page.data if page.data.is_cpu else torch.empty(page.data.shape, dtype=torch.uint8)
        )
        self.view = _view(self._host)

    def finish(self) -> None:
        """Copy what was read to the page, if that is on another device."""
        if self._host is not self._page:
            self._page.copy_(self._host.to(self._page.device))


def _view(data: Tensor) -> memoryview:
    return cast("memoryview", data.numpy().data).cast("B")
