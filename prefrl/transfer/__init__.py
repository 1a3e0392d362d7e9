"""Comparisons with their segments to a file and back: ``prefrl export`` and ``prefrl import``.

One row is one comparison that still stands. The same columns in both formats, ``.parquet`` and ``.jsonl``:

- ``uuid``, ``preference`` (left, right, tie, incomparable: as shown), ``shown_left`` (1 or 2), ``mu`` (mass on
  segment 1, null where the row does not train), ``annotator``, ``response_ms``, ``created`` (ISO 8601, UTC, Z),
  ``detail`` (JSON), ``env_id`` and ``spaces`` (JSON) of the run;
- for each side, with ``segment_1_`` or ``segment_2_`` in front: ``digest``; ``obs``, ``act`` and ``states`` (or
  null), each a flat list with its ``…_shape`` and ``…_dtype``; ``env_index``, ``episode``, ``start``,
  ``env_steps``, ``source``.

``.csv`` can only be exported, and holds no segments (see `prefrl.transfer.spreadsheet`). Of a folder of videos, whose
segments have no arrays, all formats have other columns, with the names of the files (see `prefrl.transfer.clips`).

Never the true reward. Equal comparisons give equal bytes.

A foreign file needs only ``segment_1_obs``, ``segment_1_act``, ``segment_2_obs``, ``segment_2_act`` (nested lists,
or flat ones with ``…_shape``; float32 unless ``…_dtype`` says otherwise, Discrete actions int64) and one label:

- ``preference``: the words above, as shown (``shown_left`` is 1 where it is missing);
- ``mu``: 0, 0.5 or 1. Other fractions are means of several answers: one row for each answer is wanted;
- ``label``: numbers in one of three encodings: ``mu``; ``sign`` (1 segment 1 is preferred, 0 tie, -1 segment 2);
  ``index`` (0 the first is preferred, 1 the second, 0.5 equal). Only -1 gives its encoding away; any other
  column means opposite things in two of them, so it is refused until ``--labels`` names one.

A row is a segment that somebody has cut already: import never cuts trajectories, so it cannot cross an episode's
end that a file fails to mark. Other columns are ignored; pickle and npz are never read.
"""

from prefrl.transfer.exporting import export_comparisons
from prefrl.transfer.importing import import_comparisons

__all__ = ["export_comparisons", "import_comparisons"]
