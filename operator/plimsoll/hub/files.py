"""What files has a repository on a model hub, and what stands at their beginning?

Ranges of files are asked for, by way of `huggingface_hub`: it knows HF_ENDPOINT, HF_TOKEN (or who logged in),
HF_HUB_OFFLINE and the proxies. The library is loaded at the first question, for it takes longer to load
than a plan takes to make.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, NamedTuple

from plimsoll.facts.files import ModelFilesError

FIRST_STEP_BYTES: Final = 64 * 1024
LARGEST_STEP_BYTES: Final = 2**20
"""A GGUF header ends where it ends, so each next range is twice as long, up to this: at most so much is
fetched that lies behind it. Headers with a vocabulary have 2 to 12 MB."""
TIMEOUT_SECONDS: Final = 30.0
MISSING: Final = (
    "huggingface_hub is not installed; install plimsoll[hub], or download the folder and name it"
)


class Repository(NamedTuple):
    """A repository and which state of it."""

    name: str
    """For example meta-llama/Llama-3.3-70B-Instruct."""
    revision: str | None = None
    """Branch, tag or commit; None for the main branch."""

    def __str__(self) -> str:
        return f"hf://{self.name}" + (f"@{self.revision}" if self.revision else "")


class HubFiles:
    """One repository at one commit: what facts.files asks of a place."""

    def __init__(self, repository: Repository) -> None:
        """Ask the hub which commit and which files that is. Raises ModelFilesError."""
        self._hub = _library()
        self._named = repository
        with self._answers(""):
            info = self._hub.HfApi().model_info(
                repository.name,
                revision=repository.revision,
                files_metadata=True,
                timeout=TIMEOUT_SECONDS,
            )
        self._sizes: dict[str, int | None] = {f.rfilename: f.size for f in info.siblings or ()}
        self._commit = str(info.sha or repository.revision or "")
        self.bytes_fetched = 0
        """Bytes of files that were asked for so far."""

    @property
    def revision(self) -> str:
        """The commit that the branch or tag stood for."""
        return self._commit

    @property
    def where(self) -> str:
        """The repository at its commit."""
        return str(Repository(self._named.name, self._commit))

    def sizes(self) -> Mapping[str, int | None]:
        """All files of the commit."""
        return self._sizes

    def title(self, name: str) -> str:
        """The file's address."""
        return f"{self.where}/{name}"

    def stamp(self, name: str) -> str:
        """The commit names the content."""
        return f"{self._commit}:{self._sizes.get(name)}"

    def open(self, name: str) -> BinaryIO:
        """The file, read range by range as it is asked for. Raises ModelFilesError, now or while read."""
        if name not in self._sizes:
            raise ModelFilesError(f"{self.title(name)}: there is no such file in the repository")
        stream: Any = _Ranges(self, name, self._sizes[name])
        found: BinaryIO = stream
        return found

    def fetch(self, name: str, begin: int, size: int) -> bytes:
        """Bytes of a file. Raises ModelFilesError, also when the hub would send the whole file instead."""
        url = self._hub.hf_hub_url(self._named.name, name, revision=self._commit)
        headers = self._hub.utils.build_hf_headers() | {
            "Range": f"bytes={begin}-{begin + size - 1}",
            "Accept-Encoding": "identity",
        }
        with self._answers(name):
            session = self._hub.utils.get_session()
            with session.stream("GET", url, headers=headers, timeout=TIMEOUT_SECONDS) as response:
                if response.status_code >= 400:
                    response.read()
                self._hub.utils.hf_raise_for_status(response)
                is_whole = begin == 0 and self._sizes.get(name, size + 1) == size
                if response.status_code != 206 and not is_whole:
                    raise ModelFilesError(
                        f"{self.title(name)}: {response.url.host} answers with the whole file instead of "
                        "a part of it; a proxy or mirror without range requests stands between: go past "
                        "it with HF_ENDPOINT, or download the folder and name it"
                    )
                content: bytes = _at_most(response.iter_raw(), size)
        self.bytes_fetched += len(content)
        return content

    @contextmanager
    def _answers(self, name: str) -> Iterator[None]:
        """What the hub or the way to it says no to, as one plain sentence."""
        errors = self._hub.errors
        what = self.title(name) if name else str(self._named)
        try:
            yield
        except errors.OfflineModeIsEnabled as error:
            raise ModelFilesError(
                f"{what}: HF_HUB_OFFLINE is set, so the hub is not asked; unset it, or name a folder "
                "with the files"
            ) from error
        except errors.GatedRepoError as error:
            raise ModelFilesError(
                f"{what}: the repository is gated and this token may not read it; accept its terms on "
                "the hub, and give a token of that account in HF_TOKEN"
            ) from error
        except errors.RevisionNotFoundError as error:
            raise ModelFilesError(
                f"{what}: there is no revision {self._named.revision!r}; name a branch, tag or commit "
                "of the repository"
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise ModelFilesError(
                f"{what}: there is no such repository, or it is private; check the name, and give "
                "HF_TOKEN where one is needed"
            ) from error
        except (errors.EntryNotFoundError, errors.HFValidationError) as error:
            raise ModelFilesError(f"{what}: {_first_line(error)}; check the name") from error
        except errors.HfHubHTTPError as error:
            code = error.response.status_code
            way_out = _WAYS_OUT.get(code, "try again later, or download the folder and name it")
            raise ModelFilesError(f"{what}: the hub answers {code}; {way_out}") from error
        except ValueError as error:
            raise ModelFilesError(
                f"{what}: {self._hub.constants.ENDPOINT} does not answer as a hub does; check HF_ENDPOINT"
            ) from error
        except _network_errors() as error:
            raise ModelFilesError(
                f"{what}: no answer from {self._hub.constants.ENDPOINT} ({_first_line(error)}); check "
                "HF_ENDPOINT and the proxy, or name a folder with the files"
            ) from error


_WAYS_OUT: Final = {
    401: "the token in HF_TOKEN is not valid: give another one",
    403: "the token in HF_TOKEN may not read this: give one that may",
    429: "too many requests: wait, or give HF_TOKEN",
}


class _Ranges(io.RawIOBase):
    """Reads forward; fetches exactly what is asked for when much is, and a little ahead when little is."""

    def __init__(self, files: HubFiles, name: str, size: int | None) -> None:
        self._files = files
        self.name = files.title(name)
        self._file = name
        self._size = size
        self._held, self._at = b"", 0
        self._position = 0
        self._fetched = 0
        self._step = FIRST_STEP_BYTES if name.endswith(".gguf") else 0

    def readable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Bytes read so far."""
        return self._position

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; fewer only at the end."""
        rest = None if self._size is None else self._size - self._position
        wanted = rest if size < 0 else size if rest is None else min(size, rest)
        if wanted is None:
            raise ModelFilesError(f"{self.name}: its size is not known, so it is not read whole")
        while (missing := wanted - (len(self._held) - self._at)) > 0:
            got = self._more(missing)
            if not got:
                break
            self._held, self._at = self._held[self._at :] + got, 0
        taken = self._held[self._at : self._at + wanted]
        self._at += len(taken)
        self._position += len(taken)
        return taken

    def _more(self, missing: int) -> bytes:
        ahead = max(missing, self._step)
        self._step = min(2 * self._step, LARGEST_STEP_BYTES)
        if self._size is not None:
            ahead = min(ahead, self._size - self._fetched)
        if ahead <= 0:
            return b""
        got = self._files.fetch(self._file, self._fetched, ahead)
        self._fetched += len(got)
        return got


def _at_most(chunks: Iterator[bytes], size: int) -> bytes:
    held = bytearray()
    for chunk in chunks:
        held += chunk
        if len(held) >= size:
            break
    return bytes(held[:size])


def _library() -> Any:
    """huggingface_hub, loaded now. Raises ModelFilesError where it is not installed."""
    try:
        import huggingface_hub  # noqa: PLC0415 - at the first question, see above
        import huggingface_hub.constants  # noqa: PLC0415
        import huggingface_hub.errors  # noqa: PLC0415
        import huggingface_hub.utils  # noqa: PLC0415
    except ImportError as error:
        raise ModelFilesError(MISSING) from error
    return huggingface_hub


def _network_errors() -> tuple[type[Exception], ...]:
    import httpx2  # noqa: PLC0415 - comes with huggingface_hub

    return (httpx2.TransportError, httpx2.TooManyRedirects, OSError)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
