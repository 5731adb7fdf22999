"""Formulas of Office Math as one line of text: `x=(-b±√(b^2-4ac))/(2a)`."""

from __future__ import annotations

from xml.etree.ElementTree import Element


def formula_text(element: Element) -> str:
    """The formula of an `m:oMath` or a part of it."""
    return "".join(_one(child) for child in element)


def _part(element: Element, name: str) -> str:
    found = element.find(name)
    return formula_text(found) if found is not None else ""


def _grouped(text: str) -> str:
    """In brackets, unless it is a single sign or a number."""
    is_single = len(text) == 1 or text.isdecimal() or (text[:1] == "(" and _closes(text))
    return text if is_single or not text else f"({text})"


def _closes(text: str) -> bool:
    """Whether the bracket at the start of a text is closed by its last character."""
    depth = 0
    for i, each in enumerate(text):
        depth += (each == "(") - (each == ")")
        if not depth:
            return i == len(text) - 1
    return False


def _sign(element: Element, properties: str, name: str, default: str) -> str:
    found = element.find(properties)
    sign = found.find(name) if found is not None else None
    return default if sign is None else sign.get("m:val", "")


def _scripts(base: str, below: str, above: str) -> str:
    made = base
    if below:
        made += f"_{_grouped(below)}"
    if above:
        made += f"^{_grouped(above)}"
    return made


def _one(element: Element) -> str:
    def part(name: str) -> str:
        return _part(element, name)

    match element.tag:
        case "m:r":
            return "".join(each.text or "" for each in element.iter("m:t"))
        case "m:f":
            return f"{_grouped(part('m:num'))}/{_grouped(part('m:den'))}"
        case "m:sSup" | "m:sSub" | "m:sSubSup":
            return _scripts(_grouped(part("m:e")), part("m:sub"), part("m:sup"))
        case "m:sPre":
            return _scripts("", part("m:sub"), part("m:sup")) + part("m:e")
        case "m:rad":
            degree = part("m:deg")
            return f"√({degree + '&' if degree else ''}{part('m:e')})"
        case "m:nary":
            sign = _sign(element, "m:naryPr", "m:chr", "∫")
            return f"{_scripts(sign, part('m:sub'), part('m:sup'))} {part('m:e')}"
        case "m:d":
            start = _sign(element, "m:dPr", "m:begChr", "(")
            end = _sign(element, "m:dPr", "m:endChr", ")")
            between = _sign(element, "m:dPr", "m:sepChr", "|")
            return start + between.join(map(formula_text, element.findall("m:e"))) + end
        case "m:func":
            return f"{part('m:fName')}{_grouped(part('m:e'))}"
        case "m:limLow":
            return _scripts(part("m:e"), part("m:lim"), "")
        case "m:limUpp":
            return _scripts(part("m:e"), "", part("m:lim"))
        case "m:m":
            rows = element.findall("m:mr")
            return "[" + "; ".join(", ".join(map(formula_text, row)) for row in rows) + "]"
        case "m:eqArr":
            return "; ".join(map(formula_text, element.findall("m:e")))
        case "m:acc":
            return _grouped(part("m:e")) + _sign(element, "m:accPr", "m:chr", "\u0302")
        case "w:del":
            return ""
        case tag if tag.endswith("Pr"):
            return ""
        case _:
            return formula_text(element)
