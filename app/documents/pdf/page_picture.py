"""Pages of PDF files as pictures, painted by PDFium in a child process."""

from __future__ import annotations

import ctypes
import io
import math
from typing import Any

from PIL import Image

from app.documents.pdf.library import opened, pdfium
from app.documents.source import ExtractionError, ExtractionFault, Source

_LARGEST = 8.0  # pixels of a point: a stamp does not become a poster
_WHITE = 0xFFFFFFFF


def page_picture(source: Source, index: int, longest: int) -> bytes:
    """The page `index` as a PNG file with sides of `longest` pixels at most.

    Raises ExtractionError.
    """
    with opened(source) as (document, form):
        page = pdfium.FPDF_LoadPage(document, index)
        if not page:
            raise ExtractionError(ExtractionFault.DAMAGED, f"page {index} cannot be loaded")
        if form is not None:
            pdfium.FORM_OnAfterLoadPage(page, form)
        try:
            return _painted(page, form, _size(page, longest))
        finally:
            if form is not None:
                pdfium.FORM_OnBeforeClosePage(page, form)
            pdfium.FPDF_ClosePage(page)


def _size(page: Any, longest: int) -> tuple[int, int]:
    """Width and height in pixels, whatever size the page says it has."""
    points = pdfium.FPDF_GetPageWidthF(page), pdfium.FPDF_GetPageHeightF(page)
    if not all(math.isfinite(each) and each > 0 for each in points):
        raise ExtractionError(ExtractionFault.DAMAGED, f"a page of {points} points")
    share = min(longest / max(points), _LARGEST)
    width, height = (min(max(round(each * share), 1), longest) for each in points)
    return width, height


def _painted(page: Any, form: Any, size: tuple[int, int]) -> bytes:
    width, height = size
    bitmap = pdfium.FPDFBitmap_CreateEx(width, height, pdfium.FPDFBitmap_BGRx, None, 0)
    if not bitmap:
        raise ExtractionError(ExtractionFault.MEMORY)
    try:
        pdfium.FPDFBitmap_FillRect(bitmap, 0, 0, width, height, _WHITE)
        place, flags = (0, 0, width, height, 0), pdfium.FPDF_ANNOT
        pdfium.FPDF_RenderPageBitmap(bitmap, page, *place, flags)
        if form is not None:  # what was entered in its fields
            pdfium.FPDF_FFLDraw(form, bitmap, page, *place, flags)
        stride = pdfium.FPDFBitmap_GetStride(bitmap)
        pixels = ctypes.string_at(pdfium.FPDFBitmap_GetBuffer(bitmap), stride * height)
    finally:
        pdfium.FPDFBitmap_Destroy(bitmap)
    file = io.BytesIO()
    Image.frombuffer("RGB", size, pixels, "raw", "BGRX", stride, 1).save(file, "PNG")
    return file.getvalue()
