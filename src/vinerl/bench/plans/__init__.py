"""Many runs: the queue of results, sweeps, and a cluster to run them on."""
