"""Experiments: every table and figure of the three papers, as data, jobs and claims, and their execution.

One file per table or figure in the folder of its paper; `core/experiment.py` describes what it contains.
"""
