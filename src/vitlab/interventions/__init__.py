"""Interventions: change activations of a model temporarily, to see what depends on them.

- `intervention.py`: `intervene`, the context manager that ablates, replaces or patches activations;
- `arguments.py`: its arguments in one form each;
- `hooks.py`: hooks inside a `with` block;
- `places.py`: activations at seams, as tokens (B, N, D);
- `heads.py`: outputs of single attention heads;
- `units.py`: removal of whole MSAs, MLPs and convolutions.
"""

from vitlab.interventions.intervention import Activations, activations, intervene

__all__ = ["Activations", "activations", "intervene"]
