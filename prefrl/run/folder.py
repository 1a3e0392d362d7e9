"""``prefrl label --clips FOLDER``: the videos of a folder become a run that people compare, without any training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from prefrl import __version__
from prefrl.config import EnvConfig, LabelConfig, RunConfig
from prefrl.errors import ConfigError, DataError
from prefrl.resolve import resolve
from prefrl.reward_model.schedule import budget_of
from prefrl.run.pairs import Pair, draw_pairs, n_pairs, usual_labels
from prefrl.seeding import Stream, rng_for
from prefrl.segments.files import Folder, VideoFile, look
from prefrl.settings import from_dict, to_dict
from prefrl.store.comparisons import active, n_counted, tail
from prefrl.store.engine import Database
from prefrl.store.folder import (
    CLIPS,
    StoredClip,
    add_clip,
    ask,
    folder_of,
    is_clips,
    rename_clip,
    stored_clips,
)
from prefrl.store.runs import Run, check_name, create_run, free_name, list_runs, update_config

LEAST = 2  # clips that can be compared
N_NAMED = 3  # of the files that are no videos

Tell = Callable[[str], None]


def open_folder(
    url: str,
    folder: Path,
    name: str | None = None,
    labels: int | None = None,
    *,
    seed: int = 0,
    tell: Tell = lambda line: None,
) -> Run:
    """Makes a run of a folder's videos, or goes on with the one that there is.

    Nothing is written before everything that can be wrong has been looked at.

    Args:
        url: The database; made where there is none.
        folder: The folder.
        name: Of the run; by default the newest one of this folder, else a new one with the folder's name.
        labels: How many comparisons are wanted; by default as many as before, else about 10 a clip.
        seed: Of the pairs of a new run.
        tell: Is given a line for each video that is left out, and what else a person should know.

    Raises:
        ConfigError: PyAV is not installed, or the run of that name trains.
        DataError: There is no such folder, or it has fewer than two videos that browsers play.
        StoreError: The database cannot be used, or a run cannot have that name.
    """
    if name is not None:
        check_name(name)
    if labels is not None and labels < 1:
        raise ConfigError(f"--labels must be at least 1, not {labels}")
    found = look(folder)
    if len(found.videos) < LEAST:
        _tell_left_out(found, tell)
        raise DataError(
            f"{found.path} holds {len(found.videos) or 'no'} clip{'' if len(found.videos) == 1 else 's'} that browsers "
            f"play: at least {LEAST} are needed, H.264 in .mp4 or VP8, VP9 or AV1 in .webm "
            "(ffmpeg -i IN -c:v libx264 -pix_fmt yuv420p OUT.mp4 makes one)"
        )
    with Database.create(url) as db:
        run = _run_of(db, found, name, labels, seed, tell)
        _tell_left_out(found, tell)
        return _fill(db, run, found, labels, tell)


def _tell_left_out(found: Folder, tell: Tell) -> None:
    for file, why in found.left_out:
        tell(f"left out: {file}: {why}")
    if found.ignored:
        n_more = len(found.ignored) - N_NAMED
        more = f" and {n_more} more" if n_more > 0 else ""
        tell(f"not looked at, for they are no videos: {', '.join(map(repr, found.ignored[:N_NAMED]))}{more}")


def _run_of(db: Database, found: Folder, name: str | None, labels: int | None, seed: int, tell: Tell) -> Run:
    """The run that goes on, or a new one."""
    runs = list_runs(db)
    if name is not None:
        for run in runs:
            if run.name == name and not is_clips(run):
                raise ConfigError(f"run {name!r} is no folder of clips, but trains: give --name another name")
            if run.name == name:
                return run
    else:
        here = [run for run in runs if is_clips(run) and folder_of(run) == str(found.path)]
        if here:
            return here[-1]
        wanted = name_from(found.path.name)
        name = free_name(db, wanted)
        if name != wanted:
            tell(f"there is another run {wanted!r} already: this one is {name!r} (--name gives another name)")
    env = EnvConfig(id=CLIPS, kwargs={"folder": str(found.path), "labels": labels})
    label = LabelConfig(budget=_budget(len(found.videos), labels, 0), oracle="none", schedule="upfront")
    config = resolve(RunConfig(env=env, label=label, seed=seed))
    versions = {"prefrl": __version__, "av": version("av")}
    return create_run(db, name, to_dict(config), versions)


def name_from(folder: str) -> str:
    """A run's name made of a folder's; what a run cannot be called becomes a hyphen."""
    kept = "".join(c if c.isalnum() or c in " ._-" else "-" for c in folder)
    while ".." in kept:
        kept = kept.replace("..", ".")
    return kept.strip().lstrip(".- ") or CLIPS


def _fill(db: Database, run: Run, found: Folder, labels: int | None, tell: Tell) -> Run:
    """Adds what is new, and asks for what is missing."""
    before = {one.digest: one for one in stored_clips(db, run.id)}
    for file in found.videos:
        _store(db, run, file, before, tell)
    ids = {one.digest: one.id for one in stored_clips(db, run.id)}
    here = [ids[file.digest] for file in found.videos]
    config = from_dict(run.config)
    old, wanted = budget_of(config.label), labels or config.env.kwargs.get("labels")
    n_gone = sum(
        row.mu is not None and not row.late and not {row.segment_1, row.segment_2} <= set(here)
        for row in active(tail(db, run.id))
    )
    budget = _budget(len(here), wanted, n_gone)
    if labels is not None and budget < labels:
        tell(f"--labels {labels}: {len(here)} clips have {n_pairs(len(here))} pairs, and no pair is asked twice")
    env = dataclasses.replace(config.env, kwargs={"folder": str(found.path), "labels": wanted})
    changed = dataclasses.replace(config, env=env, label=dataclasses.replace(config.label, budget=budget))
    if changed != config:
        run = update_config(db, run.id, to_dict(changed))

    def draw(known: set[Pair], wanted: int) -> list[Pair]:
        at = {id_: index for index, id_ in enumerate(here)}
        met = [(at[one], at[two]) for one, two in known if one in at and two in at]
        pairs = draw_pairs(len(here), wanted, met, rng_for(config.seed, Stream.CANDIDATES, len(known)))
        return [(here[one], here[two]) for one, two in pairs]

    n_new = len(ids.keys() - before.keys())
    ask(db, run.id, here, budget, draw, anew=bool(n_new) or budget != old)
    done = n_counted(db, run.id)
    new = f" ({n_new} new)" if before and n_new else ""
    tell(f"run {run.name}: {len(here)} clips{new}, {done} of {budget} comparisons")
    return run


def _store(db: Database, run: Run, file: VideoFile, before: dict[str, StoredClip], tell: Tell) -> None:
    known = before.get(file.digest)
    if known is None:
        info = file.info
        detail = {"codec": info.codec, "width": info.width, "height": info.height, "fps": info.fps}
        add_clip(db, run.id, file.name, file.digest, info.n_frames, file.read(), detail)
    elif known.name != file.name:
        rename_clip(db, known.id, file.name)
        tell(f"{file.name} is the clip that was {known.name}: its answers stay")


def _budget(n: int, labels: int | None, n_gone: int) -> int:
    """Comparisons wanted of ``n`` clips, ``n_gone`` answers about others that are no longer there included."""
    return n_gone + usual_labels(n) if labels is None else min(labels, n_gone + n_pairs(n))
