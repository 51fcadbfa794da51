"""Decisions as machine code (mypyc)."""

from serving.compiled.finder import GROUP, PACKAGES, ROOT, folder, is_compiled, sources

__all__ = ["GROUP", "PACKAGES", "ROOT", "folder", "is_compiled", "sources"]
