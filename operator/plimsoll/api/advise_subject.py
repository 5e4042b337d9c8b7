"""What was read of one workload before anything is planned?"""

from typing import NamedTuple

from plimsoll.api.advise_as_is import release_of_llama_cpp, release_of_vllm
from plimsoll.api.advise_model import Identity, of_llama_cpp, of_vllm
from plimsoll.api.advise_pod import Workload, env_of, sequence, texts
from plimsoll.api.asks import release_in
from plimsoll.engines.base import EngineName, Release
from plimsoll.engines.launch import Launch, NoLaunch, launch_of, names_release
from plimsoll.engines.llama_cpp.running import LlamaCppRun, llama_cpp_run
from plimsoll.engines.reading import Reading, read_words
from plimsoll.engines.vllm.running import VllmRun, vllm_run


class Subject(NamedTuple):
    """A workload whose engine was found and whose words were read."""

    workload: Workload
    """The workload."""
    launch: Launch
    """How its engine is started."""
    reading: Reading
    """The engine's words."""
    run: VllmRun | LlamaCppRun
    """The settings that they come to."""
    identity: Identity
    """The model."""
    release: str | None
    """The engine's release as the user or the image says; None where nobody does."""
    row: Release
    """The row of the table that answers for it."""

    @property
    def engine(self) -> EngineName:
        """Which engine."""
        return self.launch.engine

    @property
    def image(self) -> str:
        """Its image; empty where nobody named one."""
        return image_of(self.workload)


def image_of(workload: Workload) -> str:
    """The image of the engine's container; empty where nobody named one."""
    return str(workload.container.get("image") or "")


def subject_of(
    workload: Workload, *, model: str | None = None, release: str | None = None
) -> Subject | NoLaunch:
    """Everything that its manifest says; `model` and `release` are the user's own words.

    Raises ValueError for a release without a number.
    """
    image, env = image_of(workload), env_of(workload)
    launch = launch_of(
        image=image,
        command=texts(workload.container.get("command")),
        args=texts(sequence(workload.container.get("args"))),
        env=env,
    )
    if isinstance(launch, NoLaunch):
        return launch
    reading = read_words(launch.engine, launch.words, env)
    said = release or (release_in(image) if image and names_release(image, launch) else None)
    if launch.engine is EngineName.VLLM:
        vllm = vllm_run(reading)
        identity = of_vllm(vllm, workload, model)
        return Subject(workload, launch, reading, vllm, identity, said, release_of_vllm(said))
    llama_cpp = llama_cpp_run(reading)
    identity = of_llama_cpp(llama_cpp, workload, model)
    return Subject(workload, launch, reading, llama_cpp, identity, said, release_of_llama_cpp(said))
