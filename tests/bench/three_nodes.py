"""A Ray cluster of three one-CPU nodes on the loopback, run by test_cluster.py with Ray's Python.

It says its address; for every process whose number it is told, it kills the node that runs it, with
all that the node has started, as when a machine loses its power.
"""

import os
import signal
import sys

from family import line, parents
from ray.cluster_utils import Cluster


def kill(process: int, nodes: dict) -> None:
    parent = parents()
    (raylet,) = set(line(process, parent)) & set(nodes)
    for below in [p for p in parent if raylet in line(p, parent)]:
        os.kill(below, signal.SIGKILL)
    cluster.remove_node(nodes.pop(raylet), allow_graceful=False)


cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = {}
for _ in range(3):
    node = cluster.add_node(num_cpus=1, wait=False)
    nodes[node.all_processes["raylet"][0].process.pid] = node
cluster.wait_for_nodes()
print(cluster.address, flush=True)
for word in sys.stdin:
    kill(int(word), nodes)
    print("killed", flush=True)
cluster.shutdown()
