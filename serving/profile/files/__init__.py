"""Profiles as files."""
