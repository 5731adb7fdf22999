"""Observable objects: fields that only their own methods set, and signals that tell of changes.

A widget that set such a field directly would change it without the signal that repaints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Generic, Never, Self, TypeVar, overload

from PySide6.QtCore import QObject, SignalInstance

T = TypeVar("T")
K = TypeVar("K")
EMPTY: Mapping[Any, Any] = MappingProxyType({})


class ReadOnly(Generic[T]):
    """Descriptor of a read-only field with its first value; methods of its class set `_name`."""

    def __init__(self, first: T) -> None:
        self._first = first

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._private = f"{owner.__name__}.{name}", f"_{name}"

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        return self if instance is None else instance.__dict__.get(self._private, self._first)

    def __set__(self, instance: object, value: Never) -> None:
        raise AttributeError(f"{self._name} is read-only: call the method that sets it")


class Observable(QObject):
    """Has read-only fields; every signal is sent after the values have changed."""

    def _set(self, changed: SignalInstance, **values: object) -> None:
        """Set fields; sends the signal if one of them had another value."""
        if any(getattr(self, name) != value for name, value in values.items()):
            for name, value in values.items():
                setattr(self, f"_{name}", value)
            changed.emit()


def changed(mapping: Mapping[K, T], key: K, value: T | None) -> Mapping[K, T]:
    """A read-only copy of a mapping with one key set; None removes the key."""
    copy = dict(mapping)
    if value is None:
        copy.pop(key, None)
    else:
        copy[key] = value
    return MappingProxyType(copy)
