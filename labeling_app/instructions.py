"""What annotators are asked to look for."""

from __future__ import annotations

from labeling_app.rules import rules_of
from labeling_app.words import Words
from prefrl.envs.tasks import find_task
from prefrl.store.runs import Run


def task_instructions(run: Run, words: Words) -> str:
    """The owner's words, else those for the task in the visitor's language, else nothing."""
    own = rules_of(run).instructions
    if own.strip():
        return own
    env = run.config.get("env")
    task = find_task(str(env.get("id"))) if isinstance(env, dict) else None
    return f"**{words(f'tasks.{task.name}')}**" if task and task.instructions else ""
