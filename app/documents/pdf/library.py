"""PDFium: the functions of its C interface, which have no types, and opened documents."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pypdfium2.raw  # pyright: ignore[reportMissingTypeStubs]

from app.documents.source import ExtractionError, ExtractionFault, Source

pdfium: Any = pypdfium2.raw


@contextmanager
def opened(source: Source) -> Generator[tuple[Any, Any]]:
    """The document and, where it has one, the environment of its form."""
    source.open().close()
    document = pdfium.FPDF_LoadDocument(os.fsencode(source.path), None)
    if not document:
        error = pdfium.FPDF_GetLastError()
        if error in (pdfium.FPDF_ERR_PASSWORD, pdfium.FPDF_ERR_SECURITY):
            raise ExtractionError(ExtractionFault.PROTECTED, "it opens with a password only")
        raise ExtractionError(ExtractionFault.DAMAGED, f"PDFium's error {error}")
    info = pdfium.FPDF_FORMFILLINFO(version=1)
    has_form = pdfium.FPDF_GetFormType(document) != pdfium.FORMTYPE_NONE
    form = pdfium.FPDFDOC_InitFormFillEnvironment(document, info) if has_form else None
    try:
        yield document, form or None
    finally:
        if form:
            pdfium.FPDFDOC_ExitFormFillEnvironment(form)
        pdfium.FPDF_CloseDocument(document)
