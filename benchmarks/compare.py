"""Programs side by side on the same rows: one after the other, again and again (A B A B)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from benchmarks import process, results
from benchmarks.programs import OURS, PROGRAMS
from benchmarks.results import Content
from benchmarks.workplace import Workplace

COLD, WARM = "cold", "warm"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One task, one kind of text, one number of rows.

    Attributes:
        repeats: by program, how often it runs.
        warm: how often each program runs a second time, with what its first run cached.
    """

    task: str
    text: str
    count: int
    repeats: Mapping[str, int]
    warm: int = 0

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"compare-{self.task}-{self.text}-{self.count}"

    @property
    def settings(self) -> Content:
        """What its runs have in common."""
        return {"task": self.task, "text": self.text, "rows": self.count}

    def _turns(self) -> list[tuple[int, str]]:
        most = max(self.repeats.values())
        return [(n, p) for n in range(most) for p, times in self.repeats.items() if n < times]

    def measure(self, place: Workplace) -> None:
        """Run what has not been run yet; each run is written at once."""
        content = results.current(self.name, self.settings)
        measured = content["measured"]
        for turn, name in self._turns():
            known = measured.setdefault(name, {COLD: [], WARM: []})
            reason = PROGRAMS[name].missing(self.task)
            if not reason and len(known[COLD]) <= turn:
                reason = self._add(place, name, turn, known)
            known.pop("missing", None)
            if reason:
                known["missing"] = reason
                print(f"  {name}: {reason}", flush=True)
            results.write(self.name, content)

    def _add(self, place: Workplace, name: str, turn: int, known: Content) -> str:
        """Run a program once more; returns why another program than ours has failed.

        Raises:
            CommandError: ours has failed.
        """
        try:
            made = self._run(place, name, turn < self.warm)
        except process.CommandError as error:
            if name == OURS:
                raise
            return f"it failed: {str(error).splitlines()[-1][:200]}"
        for state, cost in made.items():
            known[state].append(cost)
        last = known[COLD][-1]
        print(f"  {name}: {last['cpu']:.1f} s CPU, {last['wall']:.1f} s", flush=True)
        return ""

    def _run(self, place: Workplace, name: str, again: bool) -> dict[str, Content]:
        """One run with nothing cached, and another after it where that is asked for."""
        made = {}
        with place.scratch() as folder:
            for turn, state in enumerate((COLD, WARM) if again else (COLD,)):
                command, variables = PROGRAMS[name].command(
                    place, self.task, self.text, self.count, folder, turn
                )
                cost = process.run(command, folder, environment=variables, core=place.core)
                made[state] = asdict(cost)
        return made
