"""A parcel of works as a worker opens it, which counts what the driver had to send."""

from coalmine.engines.ray_parcels import Receiver
from coalmine.engines.units import Unit, in_order


def scores_of(work, units, engine):
    """The bits of a scoring work, as bytes."""
    return [outcome.value()["bits"].tobytes() for outcome in in_order(engine.map(work, units))]


def opened(parcel, texts):
    """In a process of a cluster: the bits of texts by the work in a parcel, and how many pieces of memory were sent by the driver."""
    import ray

    sent = []

    class Counting:
        exceptions = ray.exceptions

        @staticmethod
        def get(asked):
            if isinstance(asked, list):
                sent.extend(asked)
            return ray.get(asked)

    [work] = Receiver().open(Counting, parcel)
    return work.prepare()(Unit(texts), None)["bits"].tobytes(), len(sent)
