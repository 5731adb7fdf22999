"""Read-only fields of observable objects: only their own methods can set them.

A widget that set such a field directly would change it without the signal that repaints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Generic, Never, Self, TypeVar, overload

T = TypeVar("T")
K = TypeVar("K")


class ReadOnly(Generic[T]):
    """Descriptor of a read-only field; the methods of its class set it as `_name`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._private = f"{owner.__name__}.{name}", f"_{name}"

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        return self if instance is None else getattr(instance, self._private)

    def __set__(self, instance: object, value: Never) -> None:
        raise AttributeError(f"{self._name} is read-only: call the method that sets it")


def changed(mapping: Mapping[K, T], key: K, value: T | None) -> Mapping[K, T]:
    """A read-only copy of a mapping with one key set; None removes the key."""
    copy = dict(mapping)
    if value is None:
        copy.pop(key, None)
    else:
        copy[key] = value
    return MappingProxyType(copy)
