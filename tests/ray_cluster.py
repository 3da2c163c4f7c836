"""Runs a Ray cluster on this machine, a head without a core and raylets of one core each, until its
standard input ends. It prints the address. Run by ``test_clusters.py``."""

import sys

from ray.cluster_utils import Cluster

MEMORY = 80 << 20  # bytes of each object store: the least that Ray takes

if __name__ == "__main__":
    head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(int(sys.argv[1])):
        cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
    cluster.wait_for_nodes()
    sys.stdout.write(f"{cluster.address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    cluster.shutdown()
