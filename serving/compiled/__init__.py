"""Decisions as machine code (mypyc)."""

from serving.compiled.finder import GROUP, ROOT, folder, is_compiled, sources

__all__ = ["GROUP", "ROOT", "folder", "is_compiled", "sources"]
