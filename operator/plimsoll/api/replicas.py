"""How are spec.replicas shared out over pools?

Pools with a number of their own get it as long as it adds up; pools without one share what is left,
best capacity first. When every pool has a number and spec.replicas says something else, as after
`kubectl scale`, the numbers are the proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Share(NamedTuple):
    """One pool's claim."""

    pool: str
    """Name of the pool."""
    wanted: int | None = None
    """Its own number, if it has one."""
    room: int | None = None
    """Workers for which there are cards; None when nobody knows, or when it does not matter."""


def share_out(replicas: int, pools: Sequence[Share]) -> dict[str, int]:
    """Workers per pool; they always add up to `replicas` when there is a pool."""
    if not pools:
        return {}
    named = [pool for pool in pools if pool.wanted is not None]
    open_pools = [pool for pool in pools if pool.wanted is None]
    claimed = sum(pool.wanted or 0 for pool in named)
    if not open_pools or claimed > replicas:
        return {pool.pool: 0 for pool in open_pools} | _in_proportion(replicas, named)
    shares = {pool.pool: pool.wanted or 0 for pool in named}
    return shares | _best_first(replicas - claimed, open_pools)


def _in_proportion(replicas: int, pools: Sequence[Share]) -> dict[str, int]:
    """Largest remainders; of equal remainders the pool named first."""
    total = sum(pool.wanted or 0 for pool in pools)
    if total == 0:
        first, *others = pools
        return {first.pool: replicas} | {pool.pool: 0 for pool in others}
    shares = {pool.pool: replicas * (pool.wanted or 0) // total for pool in pools}
    by_remainder = sorted(pools, key=lambda pool: -(replicas * (pool.wanted or 0) % total))
    for pool in by_remainder[: replicas - sum(shares.values())]:
        shares[pool.pool] += 1
    return shares


def _best_first(replicas: int, pools: Sequence[Share]) -> dict[str, int]:
    """One each in turn while there are cards; what is left over waits in the first pool."""
    shares = {pool.pool: 0 for pool in pools}
    left = replicas
    while left:
        hungry = [pool for pool in pools if pool.room is None or shares[pool.pool] < pool.room]
        if not hungry:
            shares[pools[0].pool] += left
            break
        for pool in hungry[:left]:
            shares[pool.pool] += 1
        left = replicas - sum(shares.values())
    return shares
