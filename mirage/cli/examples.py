"""Examples below the help of commands and in their man pages."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "chains": (
        ("mirage chains", "list your active chains"),
        ("mirage chains -t all -S since", "list finished chains too, the newest last"),
        ("mirage chains -h -o chain,state", "for scripts: two columns without a header"),
        ("mirage chains -i 10", "repeat every 10 seconds"),
    ),
    "explain": (
        ("mirage explain train-llm", "explain the chain's state and its handovers"),
        ("mirage explain train-llm 3", "explain its third link"),
    ),
    "chain": (
        ("mirage chain show train-llm", "show settings, links and jobs"),
        ("mirage chain logs -f train-llm", "follow the output of its jobs, link after link"),
        ("mirage chain update train-llm --links 20", "extend the chain to 20 links"),
        ("mirage chain cancel train-llm", "cancel the chain and its running link"),
    ),
    "agent": (
        ("nohup mirage agent >agent.log 2>&1 &", "submit your links in your name, also after you log out"),
        ("mirage agent --once", "process waiting requests, then exit"),
    ),
    "demo": (
        ("mirage demo", "run a daemon, a simulated cluster, six chains and the web UI"),
        ("mirage demo --rate 60 --port 8000", "one simulated hour per minute, on port 8000"),
        ("mirage demo --report", "replay ten days and write a report to demo-out"),
    ),
    "models": (
        ("mirage models list", "list the models of the daemon and their roles"),
        ("mirage models promote xgboost-0", "use a model of mirage train after the next start of the daemon"),
        ("mirage models promote xgboost:0123456789ab", "use a registered version from the next cycle on"),
        ("mirage models list --config mirage.toml", "list the models of a daemon that is not running"),
    ),
    "doctor": (
        ("mirage doctor", "check this machine, Slurm and the configuration"),
        ("mirage doctor --config mirage.toml --json", "check another configuration file, for programs"),
    ),
}
"""By command: command lines and what they do."""


def epilog(name: str) -> str | None:
    """Return the examples below the help of a command, one per line."""
    if name not in EXAMPLES:
        return None
    width = max(len(typed) for typed, _ in EXAMPLES[name])
    lines = [f"{typed:<{width}}   {about}".replace("[", r"\[") for typed, about in EXAMPLES[name]]
    return "\n\n".join(["Examples:", *lines])
