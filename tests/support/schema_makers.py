"""Random schemas as pydantic writes them, and in the style of schemars (Rust)."""

from __future__ import annotations

import json
import random
import typing
import warnings
from collections.abc import Callable
from dataclasses import make_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union
from uuid import UUID

import pydantic
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, RootModel, TypeAdapter, create_model
from typing_extensions import TypedDict

Schema = dict[str, Any]
NAMES = ("id", "name", "größe", "created_at", "items", "kind", "next", "x-y", "price", "is_active")
Color = Enum("Color", {"RED": "red", "BLUE": "blue", "LIGHT": 'light "blue"'})
Level = IntEnum("Level", {"LOW": 1, "HIGH": 2})
INT64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
UINT64 = Annotated[int, Field(ge=0, le=2**64 - 1)]


class Tree(BaseModel):
    """A schema that refers to itself."""

    value: int
    children: list[Tree] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(gt=0, le=9)] = 9


class Dog(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["dog", "wolf"]
    name: Annotated[str, Field(min_length=1, max_length=20)]


class Person(TypedDict, total=False):
    name: typing.Required[str]
    age: int


class Pair(NamedTuple):
    left: int
    right: str = "r"


Point = make_dataclass("Point", [("x", float), ("y", float, 0.0)])
Pets = Annotated[Cat | Dog, Field(discriminator="kind")]
PLAIN: tuple[Any, ...] = (
    str, int, float, bool, None, Any, Color, Level, date, datetime, time, timedelta, UUID, Decimal,
    bytes, AnyUrl, IPv4Address, IPv6Address, Path, pydantic.SecretStr, pydantic.Base64Bytes, object,
    pydantic.Json, pydantic.ByteSize, pydantic.PositiveInt, pydantic.NonNegativeFloat, INT64, UINT64,
    pydantic.NegativeFloat, pydantic.FiniteFloat, pydantic.FilePath, pydantic.AwareDatetime,
    Tree, Pets, Person, Pair, Point, Literal["a", 1, True, None], Literal["only"], Literal[3],
    Annotated[str, Field(pattern=r"^[a-z]{2,5}-\d+$")], Annotated[str, Field(pattern=r"[A-Z]")],
    Annotated[str, Field(min_length=2, max_length=8)], Annotated[str, Field(max_length=0)],
    Annotated[float, Field(gt=0, lt=1)], Annotated[float, Field(ge=-0.5, le=2.25)],
    Annotated[int, Field(multiple_of=7)], Annotated[int, Field(gt=-3, lt=4, multiple_of=2)],
    Annotated[float, Field(multiple_of=0.25)], Annotated[Decimal, Field(ge=0, decimal_places=2)],
    pydantic.conint(strict=True, ge=5), pydantic.StrictStr, frozenset[Color], set[Literal["p", "q"]],
    set[bool], typing.Pattern[str], pydantic.UUID4, pydantic.PastDate, pydantic.HttpUrl,
    pydantic.IPvAnyAddress, pydantic.SecretBytes, pydantic.PostgresDsn,
)  # fmt: skip
# Their schemas are refused, for reasons that are written down in the tests.
REFUSED: tuple[Any, ...] = (set[str], frozenset[int])


def pydantic_schema(chance: random.Random) -> Schema:
    """The schema of a random model."""
    number = chance.randrange(10**6)
    made = _model(chance, 2, f"M{number}")
    kind = chance.choice([made, made, made, list[made], made | None])
    if chance.random() < 0.1:
        kind = RootModel[kind]
    mode = chance.choice(["validation", "serialization"])
    by_alias = chance.random() < 0.8
    with warnings.catch_warnings(action="ignore"):  # a default that the type cannot serialize
        return TypeAdapter(kind).json_schema(by_alias=by_alias, mode=mode)


def _model(chance: random.Random, depth: int, name: str) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for at in range(chance.randint(0, 5)):
        kind = _kind(chance, depth, f"{name}_{at}")
        options: dict[str, Any] = {}
        if chance.random() < 0.3:
            options["default"] = None
        if chance.random() < 0.3:
            options["alias"] = chance.choice(NAMES) + str(at)
        if chance.random() < 0.3:
            options |= {"description": "Brackets ([{ in a text.", "examples": [1], "title": "T"}
        if chance.random() < 0.1:
            options["deprecated"] = True
        if chance.random() < 0.1:
            options["json_schema_extra"] = {"x-order": at, "example": [at]}
        fields[f"field_{at}"] = (kind, Field(**options))
    extra = chance.choice(["ignore", "ignore", "forbid", "allow"])
    text = "With a docstring." if chance.random() < 0.3 else None
    config = ConfigDict(extra=extra, use_enum_values=True)
    return create_model(name, __config__=config, __doc__=text, **fields)


def _kind(chance: random.Random, depth: int, name: str) -> Any:
    if chance.random() < 0.01:
        return chance.choice(REFUSED)
    if not depth or chance.random() < 0.5:
        return chance.choice(PLAIN)
    inner = _kind(chance, depth - 1, name)
    least, most = sorted((chance.randint(0, 3), chance.randint(1, 4)))
    match chance.randrange(14):
        case 0 | 1 | 2:
            return _model(chance, depth - 1, name)
        case 3:
            return list[inner]
        case 4:
            return Annotated[list[inner], Field(min_length=least, max_length=most)]
        case 5 | 6:
            return Optional[inner]  # noqa: UP045  it may be None itself
        case 7:
            return Union[inner, _kind(chance, depth - 1, name + "u")]  # noqa: UP007  both may
        case 8:
            return dict[str, inner]
        case 9:
            return dict[chance.choice([Color, Literal["m", "n"], int, UUID, date]), inner]
        case 10:
            return dict[Annotated[str, Field(pattern="^[a-z]+$")], inner]
        case 11:
            return tuple[inner, _kind(chance, 0, name + "t")]
        case 12:
            return tuple[inner, ...]
        case _:
            return Annotated[dict[str, inner], Field(max_length=most)]


# --- schemars -----------------------------------------------------------------------------------

INTEGERS = {
    "int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535),
    "int32": None, "uint32": (0, None), "int64": None, "uint64": (0, None), "uint": (0, None),
    "int": None, "int128": None,
}  # fmt: skip


class Schemars:
    """Random types as the macros of schemars describe them, in its versions 0.8 and 1.0."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.is_old = chance.random() < 0.5
        self.definitions: dict[str, Schema] = {}

    def schema(self) -> Schema:
        """A whole schema."""
        root = self.struct(2) if self.chance.random() < 0.7 else self.tagged(2)
        name = "definitions" if self.is_old else "$defs"
        draft = "http://json-schema.org/draft-07/schema#"
        uri = draft if self.is_old else "https://json-schema.org/draft/2020-12/schema"
        found = {"$schema": uri, "title": "Root"} | root
        return found | ({name: self.definitions} if self.definitions else {})

    def reference(self, make: Callable[[int], Schema], depth: int) -> Schema:
        """A reference to a definition; with a description, in the form of the version."""
        name = f"Type{len(self.definitions)}"
        done = [one for one, schema in self.definitions.items() if schema]
        if make == self.flat_struct:  # its names must not be those of the other part
            done = []
        if done and self.chance.random() < 0.2:
            name = self.chance.choice(done)
        else:
            self.definitions[name] = {}
            self.definitions[name] = make(depth)
        folder = "definitions" if self.is_old else "$defs"
        found: Schema = {"$ref": f"#/{folder}/{name}"}
        if self.chance.random() < 0.3:
            text = {"description": "A ([{ text."}
            return text | ({"allOf": [found]} if self.is_old else found)
        return found

    def boxed(self) -> Schema:
        """A reference to a type that perhaps contains it."""
        name = self.chance.choice([*self.definitions, ""])
        folder = "definitions" if self.is_old else "$defs"
        return {"$ref": f"#/{folder}/{name}" if name else "#"}

    def value(self, depth: int) -> Schema:
        """The schema of a field's type."""
        chance = self.chance
        makers: list[Callable[[], Schema]] = [self.number, self.text, self.text, self.boolean]
        if depth:
            makers += [
                lambda: self.reference(self.struct, depth - 1),
                lambda: self.reference(self.tagged, depth - 1),
                lambda: self.array(depth - 1),
                lambda: self.map(depth - 1),
                lambda: self.optional(self.value(depth - 1)),
                lambda: self.optional(self.reference(self.struct, depth - 1)),
                lambda: self.optional(self.boxed()),
            ]
        return chance.choice(makers)()

    @staticmethod
    def boolean() -> Schema:
        """A bool."""
        return {"type": "boolean"}

    def number(self) -> Schema:
        """An integer or a float, perhaps validated."""
        chance = self.chance
        if chance.random() < 0.3:
            found: Schema = {"type": "number", "format": chance.choice(["float", "double"])}
            return found | ({"minimum": 0.0, "maximum": 1.0} if chance.random() < 0.3 else {})
        name = chance.choice(list(INTEGERS))
        found = {"type": "integer", "format": name}
        limits = INTEGERS[name] or (None, None)
        low, high = limits
        if low is not None:
            found["minimum"] = float(low) if self.is_old else low
        if high is not None and not self.is_old:
            found["maximum"] = high
        if chance.random() < 0.15:  # NonZero…
            if low == 0:
                found["minimum"] = 1.0 if self.is_old else 1
            else:
                found["not"] = {"const": 0}
        return found

    def text(self) -> Schema:
        """A string, perhaps with a format or validated."""
        chance = self.chance
        options: list[Schema] = [
            {}, {}, {"format": "date-time"}, {"format": "partial-date-time"}, {"format": "date"},
            {"format": "uuid"}, {"format": "uri"}, {"format": "ip"}, {"format": "ipv4"},
            {"format": "email"}, {"format": "phone"}, {"minLength": 1, "maxLength": 1},
            {"minLength": 1, "maxLength": 30}, {"pattern": "^[A-Z]{3}$"}, {"format": "decimal"},
            {"pattern": r"^-?\d+(\.\d+)?([eE]\d+)?$"}, {"pattern": r"^\d+\.\d+\.\d+$"},
        ]  # fmt: skip
        return {"type": "string"} | chance.choice(options)

    def array(self, depth: int) -> Schema:
        """A Vec, an array, a tuple, or a set."""
        inner, other = self.value(depth), self.value(0)
        first = "items" if self.is_old else "prefixItems"
        fixed = {"minItems": 2, "maxItems": 2}
        options: list[Schema] = [
            {"type": "array", "items": inner},
            {"type": "array", "items": inner},
            {"type": "array", "items": inner} | fixed,
            {"type": "array", first: [inner, other]} | fixed,
        ]
        if self.chance.random() < 0.3:
            several = {"type": "string", "enum": ["Read", "Write", "Execute"]}
            options.append({"type": "array", "items": several, "uniqueItems": True})
        return self.chance.choice(options)

    def map(self, depth: int) -> Schema:
        """A HashMap; with keys that are integers the newer version has patterns."""
        inner = self.value(depth)
        if not self.is_old and self.chance.random() < 0.3:
            pattern = self.chance.choice([r"^\d+$", r"^-?\d+$"])
            return {
                "type": "object",
                "patternProperties": {pattern: inner},
                "additionalProperties": False,
            }
        return {"type": "object", "additionalProperties": inner}

    def optional(self, inner: Schema) -> Schema:
        """An Option."""
        kind = inner.get("type")
        if isinstance(kind, str) and "enum" not in inner and "not" not in inner:
            return inner | {"type": [kind, "null"]}
        return {"anyOf": [inner, {"type": "null"}]}

    def struct(self, depth: int, tag: str | None = None) -> Schema:
        """A struct; flattened parts are merged or referred to by allOf."""
        chance = self.chance
        names = chance.sample(NAMES, chance.randint(0, 5))
        fields = {name: self.value(depth) for name in names}
        for name in names:
            if chance.random() < 0.2:
                fields[name] = {"description": "Of a field.", "default": None} | fields[name]
        wanted = [name for name in names if chance.random() < 0.6]
        if tag is not None:
            constant = (
                {"type": "string", "enum": [tag]}
                if self.is_old
                else {"type": "string", "const": tag}
            )
            fields, wanted = {"type": constant} | fields, ["type", *wanted]
        found: Schema = {"type": "object", "properties": fields}
        if self.is_old:
            found = {"type": "object", "required": wanted, "properties": fields}
        elif wanted:
            found["required"] = wanted
        if chance.random() < 0.3:
            found["additionalProperties"] = False
        elif depth and not self.is_old and chance.random() < 0.2:  # #[serde(flatten)]
            found |= {"allOf": [self.reference(self.flat_struct, 0)]}
        elif depth and not self.is_old and chance.random() < 0.1:
            found |= self.reference(self.flat_struct, 0) | {"unevaluatedProperties": False}
        return found

    def flat_struct(self, depth: int) -> Schema:
        """A struct that another one flattens: it has names of its own."""
        names = [f"flat_{number}" for number in range(self.chance.randint(1, 3))]
        fields = {name: self.value(depth) for name in names}
        return {"type": "object", "properties": fields, "required": names[:1]}

    def tagged(self, depth: int) -> Schema:
        """An enum: of units, or tagged externally, internally, beside its content, or not at all."""
        chance = self.chance
        match chance.randrange(6):
            case 0:
                return {"type": "string", "enum": ["First", "Second", "größte"]}
            case 1:
                return {
                    "oneOf": [self.unit("First", "The first."), self.unit("Second", "Another.")]
                }
            case 2:
                options = [{"type": "string", "enum": ["Unit", "Other"]}]
                options += [self.single(name, self.value(depth)) for name in ("New", "Old")]
                return {"oneOf": options}
            case 3:
                return {"oneOf": [self.struct(depth, name) for name in ("a", "b", "c")]}
            case 4:
                options = []
                for name in ("x", "y"):
                    tag = self.unit(name)
                    fields = {"t": tag, "c": self.value(depth)}
                    options.append({"type": "object", "required": ["t", "c"], "properties": fields})
                return {"oneOf": options}
            case _:
                return {"anyOf": [self.value(0), self.struct(depth)]}

    def unit(self, name: str, text: str = "") -> Schema:
        """A variant without content."""
        found: Schema = {"type": "string"}
        found |= {"enum": [name]} if self.is_old else {"const": name}
        return ({"description": text} if text else {}) | found

    @staticmethod
    def single(name: str, value: Schema) -> Schema:
        """A variant by its name."""
        return {
            "type": "object", "required": [name], "properties": {name: value},
            "additionalProperties": False,
        }  # fmt: skip


def schemars_schema(chance: random.Random) -> Schema:
    """A schema in the style of schemars."""
    return Schemars(chance).schema()


def text_of(schema: Schema) -> str:
    """The text of a schema, as a file has it."""
    return json.dumps(schema, ensure_ascii=False)
