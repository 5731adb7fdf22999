"""Formulas of MathML as one line of text."""

from __future__ import annotations

from xml.etree.ElementTree import Element


def mathml_text(element: Element) -> str:
    """The formula of a `math` element or of a part of it."""
    name = element.tag.rpartition(":")[2]
    parts = [mathml_text(child) for child in element]
    match name, parts:
        case (("mi" | "mn" | "mo" | "mtext" | "ms"), _):
            return (element.text or "").strip()
        case "mfrac", [above, below, *_]:
            return f"{_grouped(above)}/{_grouped(below)}"
        case (("msup" | "mover"), [base, above, *_]):
            return f"{_grouped(base)}^{_grouped(above)}"
        case (("msub" | "munder"), [base, below, *_]):
            return f"{_grouped(base)}_{_grouped(below)}"
        case (("msubsup" | "munderover"), [base, below, above, *_]):
            return f"{_grouped(base)}_{_grouped(below)}^{_grouped(above)}"
        case "msqrt", _:
            return f"√({''.join(parts)})"
        case "mroot", [base, degree, *_]:
            return f"√({degree}&{base})"
        case "mfenced", _:
            return element.get("open", "(") + ", ".join(parts) + element.get("close", ")")
        case "mtr", _:
            return ", ".join(parts)
        case "mtable", _:
            return "[" + "; ".join(parts) + "]"
        case "semantics", [shown, *_]:
            return shown
        case (("annotation" | "annotation-xml"), _):
            return ""
        case _:
            return "".join(parts)


def _grouped(text: str) -> str:
    return text if len(text) <= 1 or text.isalnum() else f"({text})"
