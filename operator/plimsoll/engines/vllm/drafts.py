"""Which caches do a checkpoint's own layers of multi-token prediction add?

Source: vLLM 0.33.0, the *_mtp.py models: a draft layer attends as the model's last attending layer does,
and stands behind the model on the last stage. It keeps no recurrent state; DeepSeek-V4's attends within
its window alone.
"""

from plimsoll.facts.model import KvGroup, KvKind, ModelFacts

_WITHOUT = ("MiniMaxM2",)
"""Models that name draft layers which the engine does not load."""
_ATTENDING = (KvKind.FULL, KvKind.MLA, KvKind.COMPRESSED_MLA)


def own_drafts(model: ModelFacts) -> tuple[KvGroup, ...]:
    """Groups of the draft layers; none where the checkpoint has no such layers."""
    attending = [group for group in model.kv_groups if group.kind in _ATTENDING]
    if not model.draft_layers or not attending or model.architecture.startswith(_WITHOUT):
        return ()
    last = max(attending, key=lambda group: max(group.at, default=0))
    beside = [group for group in model.kv_groups if group.kind is KvKind.INDEXER]
    if last.kind is KvKind.COMPRESSED_MLA:
        last = last.model_copy(update={"compress_ratio": None, "index_dim": None})
    return tuple(
        group.model_copy(update={"layers": model.draft_layers, "at": ()})
        for group in (*beside, last)
    )
