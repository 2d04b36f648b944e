"""Examples below the help of commands that users type, and in their man pages."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "chains": (
        ("mirage chains", "your chains that are not over"),
        ("mirage chains -t all -S since", "those that are over, too, the newest last"),
        ("mirage chains -h -o chain,state", "for scripts: two columns, no heading"),
        ("mirage chains -i 10", "every ten seconds"),
    ),
    "explain": (
        ("mirage explain train-llm", "what the chain waits for, and how its handovers went"),
        ("mirage explain train-llm 3", "the same of its third link"),
    ),
    "chain": (
        ("mirage chain show train-llm", "its settings, its links with their jobs"),
        ("mirage chain logs -f train-llm", "what its jobs print, link after link"),
        ("mirage chain update train-llm --links 20", "continue for longer; its links stay"),
        ("mirage chain cancel train-llm", "end it with its running link"),
    ),
    "agent": (
        ("nohup mirage agent >agent.log 2>&1 &", "submit your links as you, also after you log out"),
        ("mirage agent --once", "do what is waiting, then end"),
    ),
    "demo": (
        ("mirage demo", "a daemon, a simulated cluster, six chains, the web page"),
        ("mirage demo --rate 60 --port 8000", "an hour of the cluster in a minute, on port 8000"),
        ("mirage demo --report", "ten days replayed, and a report in demo-out"),
    ),
    "models": (
        ("mirage models list", "what the daemon keeps, what is in use, what is in shadow"),
        ("mirage models promote xgboost-0", "a model of mirage train, in use when the daemon starts"),
        ("mirage models promote xgboost:0123456789ab", "a version that is kept, in use from the next cycle on"),
        ("mirage models list --config mirage.toml", "what a daemon that does not run would use"),
    ),
    "doctor": (
        ("mirage doctor", "what this machine, Slurm and the configuration mean for chains"),
        ("mirage doctor --config mirage.toml --json", "the same of a file that is not in place yet, for programs"),
    ),
}
"""By command: what to type, and what it does."""


def epilog(name: str) -> str | None:
    """Below the help of a command; each example is a line."""
    if name not in EXAMPLES:
        return None
    width = max(len(typed) for typed, _ in EXAMPLES[name])
    lines = [f"{typed:<{width}}   {about}".replace("[", r"\[") for typed, about in EXAMPLES[name]]
    return "\n\n".join(["Examples:", *lines])
