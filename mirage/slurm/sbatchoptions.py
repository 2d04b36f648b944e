"""The options of ``sbatch``, and how it reads them: ``getopt_long``, stopping at the first word that is none.

The table holds what Slurm 22.05 to 26.05 know together, so that a script for any of them is understood.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from mirage.domain.errors import BadSpelling

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Takes(Enum):
    """Whether an option has a value."""

    NOTHING = auto()
    VALUE = auto()
    PERHAPS = auto()
    """A value only where it is attached: ``--nice=100``, ``-kno``."""


@dataclass(frozen=True, slots=True)
class Option:
    """Name, short form and argument of a known ``sbatch`` option."""

    name: str
    takes: Takes
    short: str = ""
    means: str = ""
    """The option of which this is another name; empty: none."""

    @property
    def meaning(self) -> str:
        """The name under which its value is kept."""
        return self.means or self.name


@dataclass(frozen=True, slots=True)
class Given:
    """An option as it was given."""

    name: str
    value: str | None
    """``None`` where it has none."""
    where: str
    """Place of the option, such as ``train.sh:3``, ``command line`` or ``SBATCH_PARTITION``."""

    @property
    def spelling(self) -> str:
        """In one word, as ``sbatch`` reads it."""
        return f"--{self.name}" if self.value is None else f"--{self.name}={self.value}"


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command line, and where it stands."""

    text: str
    where: str


class Options:
    """A table of options; several tables may share one command line (``beside``)."""

    def __init__(self, options: Iterable[Option], beside: Options | None = None) -> None:
        self.own = tuple(options)
        self.beside = beside
        self._exact = {option.name: option for option in reversed(self._all())}
        self._short = {option.short: option for option in self._all() if option.short}

    def read(self, words: Sequence[Word]) -> tuple[tuple[Given, ...], tuple[Word, ...]]:
        """The options at the beginning of ``words``, and the rest from the first word that is none.

        Raises ``BadSpelling`` naming the place for an unknown or ambiguous option and a missing value.
        """
        given: list[Given] = []
        rest = deque(words)
        while rest and rest[0].text.startswith("-") and rest[0].text != "-":
            word = rest.popleft()
            if word.text == "--":
                break
            given += self._long(word, rest) if word.text.startswith("--") else self._cluster(word, rest)
        return tuple(given), tuple(rest)

    def _long(self, word: Word, rest: deque[Word]) -> list[Given]:
        name, equals, value = word.text[2:].partition("=")
        option = self._named(name, word)
        if option.takes is Takes.NOTHING and equals:
            raise BadSpelling(word.text, f"{word.where}: --{option.name} takes no value")
        if equals:
            return [Given(option.meaning, value, word.where)]
        return [Given(option.meaning, _next(option, word, rest), word.where)]

    def _cluster(self, word: Word, rest: deque[Word]) -> list[Given]:
        """Options of one letter, perhaps several in a word: ``-HN2``."""
        given: list[Given] = []
        letters = word.text[1:]
        for at, letter in enumerate(letters, start=1):
            option = self._short.get(letter)
            if option is None:
                raise BadSpelling(word.text, f"{word.where}: there is no option -{letter}")
            if option.takes is not Takes.NOTHING:
                value = letters[at:] or _next(option, word, rest)
                given.append(Given(option.meaning, value, word.where))
                break
            given.append(Given(option.meaning, None, word.where))
        return given

    def _named(self, name: str, word: Word) -> Option:
        """The option with this name, or the only one that begins so; of two tables this one comes first."""
        exact = self._exact.get(name)
        if exact is not None:
            return exact
        begun = [option for option in self.own if option.name.startswith(name)]
        if not begun and self.beside:
            return self.beside._named(name, word)
        if not begun:
            raise BadSpelling(word.text, f"{word.where}: there is no option --{name}")
        if len({(option.meaning, option.takes) for option in begun}) > 1:
            choices = ", ".join(f"--{option.name}" for option in begun)
            raise BadSpelling(word.text, f"{word.where}: may be {choices}")
        return begun[0]

    def _all(self) -> tuple[Option, ...]:
        return (*self.own, *(self.beside._all() if self.beside else ()))


def _next(option: Option, word: Word, rest: deque[Word]) -> str | None:
    if option.takes is not Takes.VALUE:
        return None
    if not rest:
        raise BadSpelling(word.text, f"{word.where}: --{option.name} needs a value")
    return rest.popleft().text


def option_table(takes: Takes, text: str) -> list[Option]:
    """Options from ``name``, ``name/x`` (with its letter) and ``name>other`` (another name for it)."""
    options = []
    for item in text.split():
        spelling, _, means = item.partition(">")
        name, _, short = spelling.partition("/")
        options.append(Option(name, takes, short, means))
    return options


SBATCH = Options(
    option_table(
        Takes.VALUE,
        """account/A acctg-freq array/a autocomplete batch bb bbf begin/b chdir/D cluster>clusters
        cluster-constraint clusters/M comment constraint/C container container-id context core-spec/S
        cores-per-socket cpu-freq cpus-per-gpu cpus-per-task/c deadline delay-boot dependency/d distribution/m
        error/e exclude/x export export-file extra extra-node-info/B gid gpu-bind gpu-freq gpus/G gpus-per-node
        gpus-per-socket gpus-per-task gres gres-flags hint input/i job-name/J kill-on-invalid-dep licenses/L
        mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update mincpus network nodefile/F
        nodelist/w nodes/N ntasks/n ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket
        ntasks-per-tres open-mode output/o partition/p power prefer priority profile qos/q reservation resources
        runtime segment signal sockets-per-node switches tasks-per-node>ntasks-per-node thread-spec
        threads-per-core time/t time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap""",
    )
    + option_table(
        Takes.NOTHING,
        """consolidate-segments contiguous external help/h hold/H ignore-pbs no-requeue overcommit/O
        oversubscribe/s parsable quiet/Q reboot spread-job spread-segments stepmgr test-only usage use-min-nodes
        verbose/v version/V wait/W""",
    )
    + option_table(
        Takes.PERHAPS,
        "exclusive get-user-env nice no-kill/k oom-kill-step propagate requeue resv-ports",
    )
)

_VARIABLES = {
    "ACCOUNT": "account",
    "ARRAY_INX": "array",
    "ACCTG_FREQ": "acctg-freq",
    "BATCH": "batch",
    "BURST_BUFFER": "bb",
    "CLUSTER_CONSTRAINT": "cluster-constraint",
    "CLUSTERS": "clusters",
    "CONSOLIDATE_SEGMENTS": "consolidate-segments",
    "CONTAINER": "container",
    "CONTAINER_ID": "container-id",
    "RUNTIME": "runtime",
    "CONSTRAINT": "constraint",
    "CORE_SPEC": "core-spec",
    "CPU_FREQ_REQ": "cpu-freq",
    "CPUS_PER_GPU": "cpus-per-gpu",
    "DELAY_BOOT": "delay-boot",
    "DISTRIBUTION": "distribution",
    "EXCLUSIVE": "exclusive",
    "EXPORT": "export",
    "GET_USER_ENV": "get-user-env",
    "GRES": "gres",
    "GRES_FLAGS": "gres-flags",
    "GPUS": "gpus",
    "GPU_BIND": "gpu-bind",
    "GPU_FREQ": "gpu-freq",
    "GPUS_PER_NODE": "gpus-per-node",
    "GPUS_PER_SOCKET": "gpus-per-socket",
    "GPUS_PER_TASK": "gpus-per-task",
    "HINT": "hint",
    "IGNORE_PBS": "ignore-pbs",
    "JOB_NAME": "job-name",
    "MEM_BIND": "mem-bind",
    "MEM_PER_CPU": "mem-per-cpu",
    "MEM_PER_GPU": "mem-per-gpu",
    "MEM_PER_NODE": "mem",
    "NETWORK": "network",
    "NO_KILL": "no-kill",
    "NO_REQUEUE": "no-requeue",
    "OPEN_MODE": "open-mode",
    "OVERCOMMIT": "overcommit",
    "PARTITION": "partition",
    "POWER": "power",
    "PROFILE": "profile",
    "QOS": "qos",
    "REQUEUE": "requeue",
    "RESERVATION": "reservation",
    "SEGMENT_SIZE": "segment",
    "SIGNAL": "signal",
    "SPREAD_JOB": "spread-job",
    "SPREAD_SEGMENTS": "spread-segments",
    "THREAD_SPEC": "thread-spec",
    "THREADS_PER_CORE": "threads-per-core",
    "TIMELIMIT": "time",
    "TRES_BIND": "tres-bind",
    "TRES_PER_TASK": "tres-per-task",
    "USE_MIN_NODES": "use-min-nodes",
    "WAIT": "wait",
    "WAIT_ALL_NODES": "wait-all-nodes",
    "WCKEY": "wckey",
    "ERROR": "error",
    "INPUT": "input",
    "OUTPUT": "output",
}
"""Input environment variables of ``sbatch``, without ``SBATCH_``, and the options that they stand for."""

_OTHER_VARIABLES = {"SLURM_CLUSTERS": "clusters", "SLURM_HINT": "hint"}


def given_by_environment(environment: Mapping[str, str]) -> tuple[Given, ...]:
    """The options that ``sbatch`` takes from its environment, which count more than the script's."""
    variables = _OTHER_VARIABLES | {f"SBATCH_{name}": option for name, option in _VARIABLES.items()}
    takes = {option.name: option.takes for option in SBATCH.own}
    return tuple(
        Given(option, _value(option, takes[option], environment[variable]), variable)
        for variable, option in variables.items()
        if variable in environment
    )


def _value(option: str, takes: Takes, text: str) -> str | None:
    if takes is Takes.NOTHING or (takes is Takes.PERHAPS and not text):
        return None
    return None if option == "requeue" and text != "expedite" else text  # SBATCH_REQUEUE=1 says it too
