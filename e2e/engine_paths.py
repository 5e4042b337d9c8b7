"""Which paths do the engines answer on, as far as their own programs tell?

vLLM's are the routes of 0.33.0 (vllm/entrypoints, every router and mount), of all its servers; llama-server's
those in Debian's b11669 (libllama-server-impl.so) with the aliases that llama.cpp's tools/server/server.cpp
gives them. A word in braces is anything.
"""

from __future__ import annotations

import re
from typing import Final

_VLLM: Final = """
/abort_requests /classify /clear /cohere/v2/chat /cohere/v2/chat/render /collective_rpc /detokenize /docs
/fault_tolerance/apply /fault_tolerance/status /finish_weight_update /generative_scoring /get_world_size
/inference/v1/abort_requests /inference/v1/generate /init_weight_transfer_engine /invocations /is_paused
/is_scaling_elastic_ep /is_sleeping /keys/batch_allocate /keys/batch_exists /keys/confirm_write
/keys/get_locations /kv_event_sources /load /metrics /openapi.json /pause /ping /pooling /query
/rank/{rank}/initialize /ready /readyz /redoc /register /release_kv_cache_memory /rerank /reset_encoder_cache
/reset_mm_cache /reset_prefix_cache /resume /scale_elastic_ep /score /server_info
/shutdown_weight_transfer_engine /sleep /start_draft_weight_update /start_profile /start_weight_update /static
/stop_profile /tokenize /tokenizer_info /update_weight_version /update_weights /v1/audio/transcriptions
/v1/audio/translations /v1/chat/completions/batch /v1/chat/completions/derender /v1/chat/completions/render
/v1/completions/derender /v1/completions/render /v1/decisions /v1/embeddings /v1/load_lora_adapter
/v1/messages/count_tokens /v1/messages/render /v1/realtime /v1/rerank /v1/responses/render
/v1/responses/{response_id} /v1/responses/{response_id}/cancel /v1/score /v1/systemone /v1/unload_lora_adapter
/v2/embed /v2/rerank /version /wake_up /weight_checker /weight_info
"""
_LLAMA_SERVER: Final = """
/api/chat /api/show /api/tags /apply-template /chat/completions /chat/completions/input_tokens /completion
/completions /cors-proxy /detokenize /embedding /embeddings /index.html /infill /lora-adapters /metrics /models
/models/load /models/sse /models/unload /predict /props /rerank /reranking /responses /slots /slots/{id_slot}
/sw.js /tokenize /tools /v1/audio/transcriptions /v1/chat/completions/control /v1/chat/completions/input_tokens
/v1/embeddings /v1/health /v1/messages/count_tokens /v1/rerank /v1/reranking /v1/responses/input_tokens
/v1/stream /v1/streams/lookup /v1/systemone /
"""
_NAMED: Final = re.compile(r"\{\w+\}")
ALL: Final = tuple(
    sorted(_NAMED.sub("7", each) for each in {*_VLLM.split(), *_LLAMA_SERVER.split()})
)


def disguised(path: str) -> tuple[str, ...]:
    """The same path as a server might read it that unescapes, joins, folds or forgives."""
    rest = path[1:] or "x"
    letter = f"%{ord(rest[0]):02x}"
    return (
        f"//{rest}",
        f"/./{rest}",
        f"/%2e/{rest}",
        f"/{letter}{rest[1:]}",
        f"/%25{letter[1:]}{rest[1:]}",
        f"/%2f{rest}",
        f"/v1/models/../../{rest}",
        f"/v1/models/..%2f..%2f{rest}",
        f"/v1/models/%2e%2e/%2e%2e/{rest}",
        f"/v1/chat/completions/..;/../../{rest}",
        f"/v1/chat/completions\\..\\..\\..\\{rest}",
        f"/{rest.upper()}",
        f"/{rest}/",
        f"/{rest}.",
        f"/{rest}...",
        f"/{rest}%20",
        f"/{rest}%00",
        f"/{rest}%0d%0a",
        f"/{rest};v1/models",
        f"/{rest}?/v1/models",
        f"/{rest}#/v1/models",
        f"http://gate/{rest}",
        f"http://gate/v1/models/../{rest}",
    )
