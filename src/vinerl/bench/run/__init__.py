"""From a job to a run's folder: data, training, evaluation, checkpoints, and back."""
