"""One thread for each test process: models are tiny, and `make test` runs one process a core."""

import torch

torch.set_num_threads(1)
