"""A proxy as one would write it in an afternoon, to have its cost beside the others'.

python -m benchmarks.gateway.python_proxy PORT ENGINES_PORT
"""

from __future__ import annotations

import sys
from typing import Final

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

HOP_BY_HOP: Final = frozenset(
    {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
)
ENGINE: Final = web.AppKey("engine", ClientSession)


async def passed_on(request: web.Request) -> web.StreamResponse:
    """The request to the engine, and its answer back, chunk by chunk."""
    headers = {name: text for name, text in request.headers.items() if _is_end_to_end(name)}
    body = await request.read()
    async with request.app[ENGINE].request(
        request.method, request.path_qs, data=body, headers=headers
    ) as answer:
        told = web.StreamResponse(
            status=answer.status,
            headers={name: text for name, text in answer.headers.items() if _is_end_to_end(name)},
        )
        await told.prepare(request)
        async for chunk in answer.content.iter_any():
            await told.write(chunk)
        await told.write_eof()
        return told


def _is_end_to_end(name: str) -> bool:
    return name.lower() not in HOP_BY_HOP


def application(engine: str) -> web.Application:
    """Everything to one engine, on a new connection each."""
    made = web.Application(client_max_size=4 << 20)

    async def opens(app: web.Application) -> None:
        app[ENGINE] = ClientSession(
            engine,
            timeout=ClientTimeout(total=None),
            connector=TCPConnector(limit=0, force_close=True),
        )

    async def closes(app: web.Application) -> None:
        await app[ENGINE].close()

    made.on_startup.append(opens)
    made.on_cleanup.append(closes)
    made.router.add_route("*", "/{path:.*}", passed_on)
    return made


if __name__ == "__main__":
    own, behind = sys.argv[1:]
    web.run_app(
        application(f"http://127.0.0.1:{behind}"),
        host="127.0.0.1",
        port=int(own),
        print=None,
        access_log=None,
    )
