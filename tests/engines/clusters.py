"""Real Ray clusters of this machine, for tests."""

from pathlib import Path

TOKEN = "00112233445566778899aabbccddeeff"


class Machines:
    """A cluster whose machines are processes of this one, as `ray start` makes them."""

    def __init__(self, folder, cores):
        from ray._common.utils import get_default_ray_temp_dir
        from ray.cluster_utils import Cluster

        # Ray notes the address of the last cluster there, whichever directory it is given, and does not make it.
        Path(get_default_ray_temp_dir()).mkdir(parents=True, exist_ok=True)
        quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 200}
        self.folder = folder
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": cores,
                "temp_dir": folder,
                "include_dashboard": False,
                "_system_config": quick,
            },
        )
        self.address = self.cluster.address

    def files(self):
        return [path for path in Path(self.folder).rglob("*") if path.is_file()]


def status(process):
    """What the system says about a process, also about one that has ended."""
    try:
        lines = Path("/proc", str(process), "status").read_text().splitlines()
    except OSError:
        return {"State": "X"}
    return dict(line.split(":\t", 1) for line in lines)
