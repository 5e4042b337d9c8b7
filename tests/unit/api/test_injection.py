"""Can an argument or a variable of the user's change what a plan pins, or bring code of its own?

Every input is either refused, with the name of what it would have changed, or it is rendered and the engine's
own reading of the final command line gives what the plan gives without it. tests/engine_parsers.py reads as
the engines do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest

import scenes
from engine_parsers import Ended, Read, llama_flags, llama_reads, vllm_actions, vllm_reads
from plimsoll.decide import Manifest, Observed, decide
from plimsoll.engines.base import EngineName
from plimsoll.engines.foreign import FOREIGN
from plimsoll.engines.guard import foreign_code, shadowed_flags, unreadable_words
from plimsoll.engines.llama_cpp import flags as llama_cpp
from plimsoll.engines.vllm import flags as vllm

POOL = {EngineName.VLLM: "a6000-tp4", EngineName.LLAMA_CPP: "a6000-single"}
ROWS = {EngineName.VLLM: vllm.ROWS, EngineName.LLAMA_CPP: llama_cpp.ROWS}
VLLM, LLAMA = EngineName.VLLM, EngineName.LLAMA_CPP


# ---- what is rendered, and how the engine reads it --------------------------------------------------


def deployment(
    engine: EngineName, words: Sequence[str], env: Sequence[tuple[str, str]]
) -> Manifest:
    """The mixed fleet with additions to one engine; vLLM in the release that the stand-in reads as."""
    raw = scenes.example("mixed-fleet")
    raw["spec"]["engines"]["vllm"]["image"] = "vllm/vllm-openai:v0.33.0"
    of_engine = raw["spec"]["engines"][engine.value]
    of_engine["extraArgs"] = list(words)
    of_engine["env"] = [{"name": name, "value": value} for name, value in env]
    return raw


def answered(
    engine: EngineName, words: Sequence[str] = (), env: Sequence[tuple[str, str]] = ()
) -> Manifest | str:
    """The container of the pool, or why there is none."""
    observed = Observed(deployment=deployment(engine, words, env), inventory=scenes.MIXED)
    desired = decide(observed, now_seconds=scenes.NOON)
    made = scenes.deployments(desired).get(POOL[engine])
    if made is not None:
        container: Manifest = made["spec"]["template"]["spec"]["containers"][0]
        return container
    planned = scenes.condition(desired, "Planned")
    assert planned is not None
    assert planned["status"] == "False"
    assert planned["reason"] in {"FlagIsPinned", "NotAllowedHere", "SpecInvalid"}
    return f"{planned['reason']}: {planned['message']}"


def expanded(container: Manifest) -> list[str]:
    """The arguments as the kubelet gives them to the engine: $(NAME) is a variable's value."""
    words = list(container["args"])
    for entry in container["env"]:
        words = [w.replace(f"$({entry['name']})", entry.get("value", "")) for w in words]
    return words


def read(engine: EngineName, container: Manifest) -> Read:
    """What of the plan the engine takes from a container: every flag that is guarded."""
    words = expanded(container)
    if engine is VLLM:
        found = vllm_reads(words)
        return {dest: found[dest] for dest in ("model_tag", *guarded_dests())}
    env = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    found = llama_reads(words, env)
    shut = {first: None for first in ("-ag", "--ui-mcp-proxy") if found.get(first) == "off"}
    return {first: found.get(first) for first in guarded_dests_of_llama()} | shut


def spellings(engine: EngineName) -> frozenset[str]:
    rows = (*ROWS[engine], *FOREIGN[engine])
    return frozenset(name for row in rows for name in (row.name, *row.aliases))


@cache
def guarded_dests() -> tuple[str, ...]:
    names = spellings(VLLM)
    return tuple(row["dest"] for row in vllm_actions() if names & set(row["flags"]))


@cache
def guarded_dests_of_llama() -> tuple[str, ...]:
    names = spellings(LLAMA)
    return tuple(row["flags"][0] for row in llama_flags() if names & set(row["flags"]))


@cache
def planned(engine: EngineName) -> Read:
    container = answered(engine)
    assert isinstance(container, dict), container
    return read(engine, container)


def is_refused(engine: EngineName, word: str) -> bool:
    given: dict[str, Any] = {"extra_args": (word,), "env_names": ()}
    return bool(
        shadowed_flags(engine, **given)
        or foreign_code(engine, **given)
        or unreadable_words((word,))
    )


# ---- all that the engines' parsers know -------------------------------------------------------------


def abbreviations(flag: str) -> Iterator[str]:
    """Every start of a long name that argparse may take for the whole, and not for a name of its own."""
    whole = {each for row in vllm_actions() for each in row["flags"]}
    yield from (flag[:end] for end in range(4, len(flag)) if flag[:end] not in whole)


def test_every_spelling_that_the_parser_has_for_a_guarded_flag_is_refused_in_every_form() -> None:
    """Aliases, inverses and hidden spellings are the parser's own; so is what shortens and joins them."""
    tried, passed = 0, []
    for row in vllm_actions():
        if row["dest"] not in guarded_dests():
            continue
        for flag in row["flags"]:
            forms = {flag, f"{flag}=1", f"{flag}.a=1", f"{flag}.a.b+", f"{flag} 1", f"{flag}\n1"}
            if flag.startswith("--"):
                forms |= {"--" + form[2:].replace("-", "_") for form in forms}
                forms |= {form for short in abbreviations(flag) for form in (short, f"{short}=1")}
            tried += len(forms)
            passed += [form for form in sorted(forms) if not is_refused(VLLM, form)]
    assert passed == []
    assert tried > 3_000


def test_every_name_and_variable_that_llama_server_has_for_a_guarded_flag_is_refused() -> None:
    tried, passed = 0, []
    for row in llama_flags():
        if row["flags"][0] not in guarded_dests_of_llama():
            continue
        for flag in row["flags"]:
            if flag in {"-no-ag", "--no-agent", "--no-ui-mcp-proxy", "--no-webui-mcp-proxy"}:
                continue  # these turn a door shut
            forms = {flag, f"{flag}=1", f"{flag} 1", "--" + flag[2:].replace("-", "_")}
            forms = forms if flag.startswith("--") else {flag, f"{flag} 1"}
            tried += len(forms)
            passed += [form for form in sorted(forms) if not is_refused(LLAMA, form)]
        for name in row.get("env", ()):
            tried += 1
            found = shadowed_flags(LLAMA, extra_args=(), env_names=(name,))
            if not found and not foreign_code(LLAMA, extra_args=(), env_names=(name,)):
                passed.append(name)
    assert passed == []
    assert tried > 300


@pytest.mark.parametrize("engine", list(EngineName))
def test_no_flag_is_refused_for_another_that_it_begins(engine: EngineName) -> None:
    dests = guarded_dests() if engine is VLLM else guarded_dests_of_llama()
    known = vllm_actions() if engine is VLLM else llama_flags()
    others = [
        row for row in known if row.get("dest", row["flags"][:1] and row["flags"][0]) not in dests
    ]
    alarms = {flag for row in others for flag in row["flags"] if is_refused(engine, flag)}
    # -dc is the start of -dcp where --diffusion-config is not known yet; --no-mmproj reads as one of --mmproj.
    assert alarms <= {"-dc", "--no-mmproj"}


def test_other_names_in_our_table_are_names_of_the_same_thing() -> None:
    """Whoever reads a command line by the table would else take one flag's value for another's."""
    dests = {flag: row["dest"] for row in vllm_actions() for flag in row["flags"]}
    of_another = [
        (row.name, alias)
        for row in vllm.ROWS
        for alias in row.aliases
        if row.name in dests and alias in dests and dests[row.name] != dests[alias]
    ]
    assert of_another == []


@pytest.mark.parametrize("engine", list(EngineName))
def test_no_other_flag_of_the_parser_changes_what_is_guarded(engine: EngineName) -> None:
    """Whole, shortened, joined, dotted, and as the last word that might take one of ours with it."""
    base = answered(engine)
    assert isinstance(base, dict)
    known = vllm_actions() if engine is VLLM else llama_flags()
    changed, judged, ended = [], 0, 0
    for row in known:
        for flag in row["flags"]:
            for words in ((flag,), (flag, "1"), (f"{flag}=1",), (f"{flag}.a",), (f"{flag}.a", "1")):
                if any(is_refused(engine, word) for word in words):
                    continue
                try:
                    found = read(engine, base | {"args": with_words(engine, base["args"], words)})
                except Ended:
                    ended += 1
                    continue
                judged += 1
                if found != planned(engine):
                    changed.append(words)
    assert changed == []
    assert judged > 200
    assert ended > 100


def with_words(engine: EngineName, args: Sequence[str], words: Sequence[str]) -> list[str]:
    """The arguments with the user's own where the renderer puts them."""
    place = 1 if engine is VLLM else 0
    return [*args[:place], *words, *args[place:]]


@pytest.mark.parametrize(
    ("engine", "words"), [(VLLM, ["--seed", "7"]), (LLAMA, ["--threads", "7"])]
)
def test_the_users_words_stand_before_ours(engine: EngineName, words: list[str]) -> None:
    plain, added = answered(engine), answered(engine, words)
    assert isinstance(plain, dict)
    assert isinstance(added, dict)
    assert with_words(engine, plain["args"], words) == added["args"]


# ---- by hand ----------------------------------------------------------------------------------------


class Try(NamedTuple):
    """One attempt: what is written, and the words that the refusal must have; none where it is harmless."""

    name: str
    engine: EngineName
    words: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    refused_as: str = ""


def args(name: str, engine: EngineName, *words: str, refused: str = "") -> Try:
    return Try(name, engine, words=words, refused_as=refused)


def env(name: str, engine: EngineName, value: str = "1", *, refused: str = "") -> Try:
    return Try(f"env {name}", engine, env=((name, value),), refused_as=refused)


TRIES = (
    args("plain", VLLM, "--max-model-len", "99999", refused="--max-model-len"),
    args("joined", VLLM, "--max-model-len=99999", refused="--max-model-len"),
    args("underscores", VLLM, "--max_model_len=99999", refused="--max-model-len"),
    args("mixed underscores", VLLM, "--gpu-memory_utilization=0.99", refused="--gpu-memory-utilization"),
    args("another name", VLLM, "--device-memory-utilization=0.99", refused="--gpu-memory-utilization"),
    args("shortened", VLLM, "--max-mod=99999", refused="--max-model-len"),
    args("shortened with underscores", VLLM, "--gpu_mem=0.99", refused="--gpu-memory-utilization"),
    args("repeated", VLLM, "--max-num-seqs=1", "--max-num-seqs=999", refused="--max-num-seqs"),
    args("one line", VLLM, "--max-num-seqs 999", refused="--max-num-seqs"),
    args("newline in a word", VLLM, "--seed=1\n--max-num-seqs=999", refused="--max-num-seqs"),
    args("tab in a word", VLLM, "--seed=1\t--max-num-seqs=999", refused="--max-num-seqs"),
    args("carriage return", VLLM, "--seed=1\r--max-num-seqs=999", refused="--max-num-seqs"),
    args("leading space", VLLM, " --max-num-seqs=999", refused="--max-num-seqs"),
    args("quoted", VLLM, '"--max-num-seqs=999"'),
    args("quoted once", VLLM, "'--max-num-seqs' 999"),
    args("short alias", VLLM, "-tp", "8", refused="--tensor-parallel-size"),
    args("short alias joined", VLLM, "-tp=8", refused="--tensor-parallel-size"),
    args("start of a short alias", VLLM, "-t=8", refused="--tensor-parallel-size"),
    args("short JSON alias", VLLM, "-cc", '{"mode":0}', refused="--compilation-config"),
    args("dotted short alias", VLLM, "-cc.mode=0", refused="--compilation-config"),
    args("glued level", VLLM, "-O0", refused="--compilation-config"),
    args("level by its name", VLLM, "--optimization-level=0", refused="--optimization-level"),
    args("draft model by its alias", VLLM, "-sc", '{"model":"a/b"}', refused="--speculative-config"),
    args("dotted draft model", VLLM, "--speculative-config.model", "a/b", refused="--speculative-config"),
    args("draft model by parts", VLLM, "--spec-model=a/b", refused="--spec-model"),
    args("turned off", VLLM, "--no-enable-prefix-caching", refused="--enable-prefix-caching"),
    args("turned off otherwise", VLLM, "--disable-prefix-caching", refused="--enable-prefix-caching"),
    args("turned off, shortened", VLLM, "--disable-prefix-c", refused="--enable-prefix-caching"),
    args("config file", VLLM, "--config", "/models/x.yaml", refused="--config"),
    args("config file, joined", VLLM, "--config=/models/x.yaml", refused="--config"),
    args("config file, shortened", VLLM, "--conf", "/models/x.yaml", refused="--config"),
    args("file of arguments", VLLM, "@/models/args.txt"),
    args("another model", VLLM, "--model=evil/model", refused="--model"),
    args("another model by position", VLLM, "evil/model"),
    args("another revision", VLLM, "--revision=evil", refused="--revision"),
    args("model changed in JSON", VLLM, "--hf-overrides", '{"num_hidden_layers":1}', refused="--hf-overrides"),
    args("model changed by key", VLLM, "--hf-overrides.num_hidden_layers=1", refused="--hf-overrides"),
    args("end of flags", VLLM, "--", refused="'--'"),
    args("last word takes the next", VLLM, "--additional-config.a"),
    args("value that is missing", VLLM, "--seed"),
    args("value that looks like a flag", VLLM, "--chat-template", "--max-num-seqs", refused="--max-num-seqs"),
    args("JSON that names a flag", VLLM, "--additional-config", '{"--max-num-seqs":999}'),
    args("unicode hyphens", VLLM, "\u2010\u2010max-num-seqs=999"),
    args("en dash", VLLM, "\u2013max-num-seqs=999"),
    args("full-width hyphens", VLLM, "\uff0d\uff0dmax-num-seqs=999"),
    args("minus signs", VLLM, "\u2212\u2212max-num-seqs=999"),
    args("one unicode hyphen inside", VLLM, "--max\u2010num-seqs=999"),
    args("Cyrillic letter", VLLM, "--m\u0430x-num-seqs=999"),
    args("full-width equals", VLLM, "--max-num-seqs\uff1d999"),
    args("zero-width space", VLLM, "--max-num-seqs\u200b=999"),
    args("no-break space", VLLM, "--seed=1\u00a0--max-num-seqs=999", refused="--max-num-seqs"),
    args("capitals", VLLM, "--MAX-NUM-SEQS=999"),
    args("three hyphens", VLLM, "---max-num-seqs=999"),
    args("one hyphen", VLLM, "-max-num-seqs=999"),
    args("NUL at the end", VLLM, "--max-num-seqs\0", "999", refused="--max-num-seqs"),
    args("NUL before", VLLM, "\0--max-num-seqs=999", refused="--max-num-seqs"),
    args("escape", VLLM, "--max-num-seqs\x1b", "999", refused="--max-num-seqs"),
    Try("variable as a flag", VLLM, ("$(A)",), (("A", "--max-num-seqs=999"),), "'$(A)'"),
    Try("variable as another flag", VLLM, ("--seed", "$(A)"), (("A", "--trust-remote-code"),), "'$(A)'"),
    Try("variable inside a name", VLLM, ("--max-$(A)-seqs=9",), (("A", "num"),), "--max-$(A)-seqs"),
    Try("variable behind =", VLLM, ("--api-key=$(A)",), (("A", "--max-num-seqs=9"),)),
    Try("variable escaped", VLLM, ("--seed=$$(A)",), (("A", "--max-num-seqs=9"),)),
    args("a model's own code", VLLM, "--trust-remote-code", refused="--trust-remote-code"),
    args("a model's own code, shortened", VLLM, "--trust-rem", refused="--trust-remote-code"),
    args("a model's own code, underscores", VLLM, "--trust_remote_code", refused="--trust-remote-code"),
    args("a parser from a file", VLLM, "--tool-parser-plugin=/models/p.py", refused="--tool-parser-plugin"),
    args("a class by its path", VLLM, "--worker-extension-cls=a.B", refused="--worker-extension-cls"),
    args("code around requests", VLLM, "--middleware=a.b", refused="--middleware"),
    args("another program", VLLM, "--omni", refused="--omni"),
    args("another socket", VLLM, "--uds=/tmp/s", refused="--uds"),
    args("more nodes", VLLM, "-n", "2", refused="--nnodes"),
    args("other cards", VLLM, "--device-ids=1", refused="--device-ids"),
    args("weights in host memory", VLLM, "--offload-backend=uva", refused="--offload-backend"),
    env("LD_PRELOAD", VLLM, "/models/x.so", refused="LD_PRELOAD"),
    env("LD_AUDIT", LLAMA, "/models/x.so", refused="LD_AUDIT"),
    env("PYTHONPATH", VLLM, "/models", refused="PYTHONPATH"),
    env("PYTHONSTARTUP", VLLM, "/models/x.py", refused="PYTHONSTARTUP"),
    env("PYTHONWARNINGS", VLLM, "all:0:x.y:0:0", refused="PYTHONWARNINGS"),
    env("PATH", VLLM, "/models/bin", refused="PATH"),
    env("NCCL_NET_PLUGIN", VLLM, "/models/x.so", refused="NCCL_NET_PLUGIN"),
    env("VLLM_NCCL_SO_PATH", VLLM, "/models/x.so", refused="VLLM_NCCL_SO_PATH"),
    env("VLLM_ALLOW_INSECURE_SERIALIZATION", VLLM, refused="VLLM_ALLOW_INSECURE_SERIALIZATION"),
    env("VLLM_PORT", VLLM, "1", refused="--port"),
    env("VLLM_CONFIG_ROOT", VLLM, "/models", refused="--config"),
    env("VLLM_MODEL_REDIRECT_PATH", VLLM, "/models/r.json", refused="--model"),
    env("VLLM_MLA_DISABLE", VLLM, refused="--kv-cache-dtype"),
    env("VLLM_DP_SIZE", VLLM, "2", refused="--data-parallel-size"),
    env("NVIDIA_VISIBLE_DEVICES", VLLM, "all", refused="--device-ids"),
    env("NVIDIA_VISIBLE_DEVICES", LLAMA, "all", refused="--device"),
    env("CUDA_VISIBLE_DEVICES", VLLM, "0,1,2,3,4,5,6,7", refused="--device-ids"),
    env("vllm_port", VLLM, "1"),
    env("MAX_NUM_SEQS", VLLM, "999"),
    args("plain", LLAMA, "--ctx-size", "99999", refused="--ctx-size"),
    args("short", LLAMA, "-c", "99999", refused="--ctx-size"),
    args("glued", LLAMA, "-c99999"),
    args("joined", LLAMA, "--ctx-size=99999", refused="--ctx-size"),
    args("shortened", LLAMA, "--ctx-si", "99999"),
    args("underscores", LLAMA, "--ctx_size", "99999", refused="--ctx-size"),
    args("turned round", LLAMA, "--kv-unified", refused="--no-kv-unified"),
    args("another model", LLAMA, "-m", "/models/evil.gguf", refused="--model"),
    args("another repository", LLAMA, "-hf", "evil/model", refused="--hf-repo"),
    args("presets", LLAMA, "--models-preset", "/models/x.ini", refused="--models-preset"),
    args("last word takes the next", LLAMA, "--chat-template"),
    args("last word takes the next two", LLAMA, "--control-vector-layer-range",
         refused="--control-vector-layer-range"),
    args("end of flags", LLAMA, "--", refused="'--'"),
    args("a shell for clients", LLAMA, "--tools", "all", refused="--tools"),
    args("programs", LLAMA, "--mcp-servers-json", "{}", refused="--mcp-servers-json"),
    args("sampling on the card", LLAMA, "--backend_sampling", refused="--backend-sampling"),
    args("unicode hyphens", LLAMA, "\u2010\u2010ctx-size", "99999"),
    env("LLAMA_ARG_CTX_SIZE", LLAMA, "99999", refused="--ctx-size"),
    env("LLAMA_ARG_NO_KV_OFFLOAD", LLAMA, refused="--kv-offload"),
    env("LLAMA_ARG_TOOLS", LLAMA, "all", refused="LLAMA_ARG_TOOLS"),
    env("LLAMA_ARG_MODELS_PRESET", LLAMA, "/models/x.ini", refused="--models-preset"),
    env("GGML_BACKEND_PATH", LLAMA, "/models/x.so", refused="GGML_BACKEND_PATH"),
    env("LLAMA_ARG_THREADS", LLAMA, "4"),
)  # fmt: skip


def test_there_are_many_attempts() -> None:
    assert len({(each.engine, each.name) for each in TRIES}) == len(TRIES)
    assert len(TRIES) >= 60


@pytest.mark.parametrize("attempt", TRIES, ids=lambda each: f"{each.engine.value}: {each.name}")
def test_an_attempt_is_refused_by_name_or_changes_nothing(attempt: Try) -> None:
    answer = answered(attempt.engine, attempt.words, attempt.env)
    if attempt.refused_as:
        assert isinstance(answer, str), "it was let through"
        assert attempt.refused_as in answer
        return
    assert isinstance(answer, dict), answer
    try:
        found = read(attempt.engine, answer)
    except Ended:
        return  # such a worker never serves; the ones before it do, for a rollout waits for its first
    assert planned(attempt.engine) == found


# ---- names and addresses, which stand among our own arguments ---------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (("name",), "--max-num-seqs=999"),
        (("name",), "-x"),
        (("name",), "a b"),
        (("name",), "a\n--max-num-seqs=9"),
        (("name",), "$(HOME)"),
        (("name",), "a\0"),
        (("id",), "--config/x"),
        (("uri",), "hf://-x/model"),
        (("uri",), "hf://org/model@--trust-remote-code"),
        (("uri",), "hf://org/model@../../x"),
        (("uri",), "hf://org/.."),
        (("uri",), "pvc://claim/../other"),
        (("uri",), "pvc://claim/a/./b"),
        (("uri",), "pvc://claim/a/.."),
        (("uri",), "pvc://claim//a"),
        (("uri",), "pvc://other-namespace/claim/../../x\0"),
        (("uri",), "hostPath:///"),
        (("uri",), "hostPath:///a/../etc"),
        (("uri",), "hostPath://etc"),
        (("uri",), "hostPath:///a/$(HOME)"),
        (("uri",), "hostPath:///a\u2215b"),
        (("uri",), "oci://Image#/x"),
        (("uri",), "oci://image#/../x"),
        (("uri",), "file:///etc/passwd"),
        (("uri",), "/etc/passwd"),
        (("gguf", "uri"), "pvc://claim/x.gguf/../y.gguf"),
        (("gguf", "uri"), "hf://org/name/--model.gguf/../x.gguf"),
        (("gguf", "uri"), "hostPath:///x.gguf"),
    ],
    ids=str,
)
def test_a_name_or_address_that_could_be_a_flag_or_climb_is_refused(
    field: tuple[str, ...], value: str
) -> None:
    raw = scenes.example("mixed-fleet")
    inner: Any = raw["spec"]["model"]
    for part in field[:-1]:
        inner = inner[part]
    inner[field[-1]] = value
    desired = decide(Observed(deployment=raw, inventory=scenes.MIXED), now_seconds=scenes.NOON)
    told = scenes.condition(desired, "Planned")
    assert told is not None
    assert told["status"] == "False"
    assert told["reason"] in {"SpecInvalid", "ModelSourceUnusable"}
