"""The evidence runs on CIFAR-100: conditions, training, measurements, the job queue, and the tables."""
