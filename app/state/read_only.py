"""Fields of an observable object that nobody but its own methods can set.

A widget that set such a field directly would change what is shown without the signal that shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Generic, Never, Self, TypeVar, overload

T = TypeVar("T")
K = TypeVar("K")


class ReadOnly(Generic[T]):
    """A field that is read under its name; the methods of its class set it as `_name`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._private = f"{owner.__name__}.{name}", f"_{name}"

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        return self if instance is None else getattr(instance, self._private)

    def __set__(self, instance: object, value: Never) -> None:
        raise AttributeError(f"{self._name} is set by methods that send its signal")


def changed(mapping: Mapping[K, T], key: K, value: T | None) -> Mapping[K, T]:
    """A mapping nobody can change, with another value for one key; None takes the key away."""
    copy = dict(mapping)
    if value is None:
        copy.pop(key, None)
    else:
        copy[key] = value
    return MappingProxyType(copy)
