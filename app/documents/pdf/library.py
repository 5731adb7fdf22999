"""PDFium: the functions of its C interface, which have no types."""

from __future__ import annotations

from typing import Any

import pypdfium2.raw  # pyright: ignore[reportMissingTypeStubs]

pdfium: Any = pypdfium2.raw
