"""Training runs written down: functions that return a frozen `Recipe`; plain data, no torch.

The public functions of each file stand in its `__all__` and are looked up by name, with settings or without:
`vitlab train vit_tiny_cifar100`, `vitlab train "deit_imagenet(size='small', part='cb')"`. Each docstring is a lab note:
source, hardware, runtime, expected number, command.
"""
