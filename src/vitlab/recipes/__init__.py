"""Recipes: functions that return a frozen `Recipe`, without importing torch.

The functions in the `__all__` of each file are available by name, with optional settings:
`vitlab train vit_tiny_cifar100`, `vitlab train "deit_imagenet(size='small', part='cb')"`. Each docstring states source,
hardware, runtime, expected number and command.
"""
