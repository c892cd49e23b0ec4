"""Temporary."""


def code_version(module: str) -> str:
    return ""
