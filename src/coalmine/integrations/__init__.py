"""Callbacks that measure exposure inside other trainers (transformers, Lightning); each is loaded when it is first used."""

from coalmine.lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__)
