"""Is a silent, absent or refusing HAProxy noticed as what it is?"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plimsoll.keeper.runtime import COMMANDS_AT_ONCE, Runtime, SilentError


async def answering(path: Path, answer: bytes | None, heard: list[str]) -> asyncio.Server:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await reader.readline()).decode().strip())
        if answer is None:
            try:
                await asyncio.Event().wait()  # until the loop ends
            finally:
                writer.close()
        else:
            writer.write(answer)
            writer.close()

    return await asyncio.start_unix_server(talk, path)


def test_nobody_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SilentError, match=r"nobody[.]sock"):
        asyncio.run(Runtime(tmp_path / "nobody.sock").ask("show stat"))


def test_silence_has_an_end(tmp_path: Path) -> None:
    async def story() -> None:
        server = await answering(tmp_path / "a.sock", None, [])
        with pytest.raises(SilentError, match="no answer in"):
            await Runtime(tmp_path / "a.sock", timeout_seconds=0.05).ask("show stat")
        server.close()

    asyncio.run(story())


def test_what_haproxy_refuses_is_told_and_what_it_confirms_is_not(tmp_path: Path) -> None:
    async def story() -> None:
        heard: list[str] = []
        said = b"\nIP changed from '127.0.0.1' to '10.0.0.1' by 'stats socket command'\n\nNo such server.\n\n"
        server = await answering(tmp_path / "a.sock", said, heard)
        commands = [f"command {number}" for number in range(COMMANDS_AT_ONCE + 1)]
        assert ("No such server.",) * 2 == await Runtime(tmp_path / "a.sock").tell(commands)
        assert [COMMANDS_AT_ONCE, 1] == [len(line.split("; ")) for line in heard]
        server.close()

    asyncio.run(story())
