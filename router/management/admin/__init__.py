"""The admin door: what changes something is let in there alone, and leaves a line."""

from router.management.admin.audit import say_edit
from router.management.admin.guard import ChangeGuard

__all__ = ["ChangeGuard", "say_edit"]
