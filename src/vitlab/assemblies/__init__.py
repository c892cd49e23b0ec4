"""Assemblies: models for dense prediction, built around a described backbone.

A file names in `__all__` the functions that a model expression can call, as `vitlab/NAME(backbone='EXPRESSION', ...)`.
Their first argument is the backbone, a built module; `zoo.load` builds it from its expression. They return an
`Assembly`.
"""
