"""What does the user's own table of cards say, as it lies in a file?"""

from __future__ import annotations

from pathlib import Path

import yaml

from plimsoll.catalog.profiles import GpuProfile, read_profiles


def read_gpu_types(path: str | None) -> tuple[GpuProfile, ...]:
    """The rows of the file, which is YAML or JSON; none where no file is named.

    Raises ValueError that names file, row, field and value: a table with an error in it must not be
    half believed.
    """
    if path is None:
        return ()
    try:
        return read_profiles(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML or JSON ({error})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
