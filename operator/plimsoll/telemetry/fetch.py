"""How do we read a page that may be slow, huge, cut off or not meant for us?

One pool of connections for everybody; a total time, a size cap on what is unpacked, no redirects (they
would carry a token elsewhere). Whatever goes wrong is a ScrapeError with its reason.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final

import aiohttp

from plimsoll.telemetry.source import Reason, ScrapeError

TIMEOUT_SECONDS: Final = 5.0
MOST_BYTES: Final = 8 << 20
"""A kubelet's summary of 250 pods is below 2 MB, a page of vLLM 50 kB (measured: docs/measured/watching.md)."""
_CHUNK_BYTES: Final = 1 << 16
_OK: Final = 200
_BY_STATUS: Final = {401: Reason.UNAUTHORIZED, 403: Reason.FORBIDDEN, 404: Reason.ABSENT}
_SHOWN_BYTES: Final = 200


class Fetcher:
    """The pool. Made inside the running event loop.

    No connection is kept: a round comes every 30 s, and each idle one to a kubelet would hold 256 KiB, the
    buffer of asyncio's TLS (measured: docs/measured/scale.md).
    """

    def __init__(self, *, connections: int = 128, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, limit_per_host=4, force_close=True),
            timeout=aiohttp.ClientTimeout(total=timeout_seconds),
            headers={"User-Agent": "plimsoll"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._timeout_seconds = timeout_seconds

    async def close(self) -> None:
        """Let go of the connections."""
        await self._session.close()

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | bool = True,
        most_bytes: int = MOST_BYTES,
        timeout_seconds: float | None = None,
    ) -> bytes:
        """The body of a 200. Raises ScrapeError for everything else."""
        timeout = aiohttp.ClientTimeout(total=timeout_seconds or self._timeout_seconds)
        try:
            async with self._session.get(
                url, headers=headers, ssl=tls, allow_redirects=False, timeout=timeout
            ) as answer:
                if answer.status != _OK:
                    told = await answer.content.read(_SHOWN_BYTES)
                    raise ScrapeError(
                        _BY_STATUS.get(answer.status, Reason.STATUS),
                        f"HTTP {answer.status}: {told.decode('utf-8', 'replace').strip()}",
                    )
                return await _body(answer, most_bytes)
        except TimeoutError as error:
            raise ScrapeError(Reason.TIMEOUT, f"no answer in {timeout.total:g} s") from error
        except (aiohttp.ClientSSLError, ssl.SSLError) as error:
            raise ScrapeError(Reason.TLS, _told(error)) from error
        except aiohttp.ClientPayloadError as error:
            raise ScrapeError(Reason.MALFORMED, f"cut off: {_told(error)}") from error
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            raise ScrapeError(Reason.UNREACHABLE, _told(error)) from error


async def _body(answer: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
        body += chunk
        if len(body) > most_bytes:
            answer.close()
            raise ScrapeError(Reason.TOO_LARGE, f"more than {most_bytes:,} bytes")
    return bytes(body)


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__
