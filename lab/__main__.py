"""`python -m lab EXPERIMENT`: see docs/lab.md."""

import argparse
import os
import pathlib
import shutil

from lab import chaining, failover, lag, leadership, pictures, priority, uplink

# Those of `all`.
EXPERIMENTS = {"chaining": chaining.run, "uplink": uplink.run, "failover": failover.run, "lag": lag.run}
# Those in parts, which take an hour and more and are run by their names.
IN_PARTS = {"leadership": leadership, "priority": priority}


def main():
    parser = argparse.ArgumentParser(prog="lab", description="Experiments with members on machines of their own")
    parser.add_argument("experiment", choices=[*EXPERIMENTS, "all", *IN_PARTS])
    cache = pathlib.Path(os.environ.get("BATON_CACHE", pathlib.Path.home() / ".cache/baton"))
    parser.add_argument("--dir", type=pathlib.Path, default=cache / "lab", help="where members keep their data, and reports go")
    parser.add_argument("--pictures", type=pathlib.Path, help="where pictures go (beside the reports, if not given)")
    parser.add_argument("--draw-only", action="store_true", help="draw the reports of earlier runs")
    parser.add_argument("--part", choices=[*leadership.PARTS, *priority.PARTS], help="of an experiment in parts, this one alone")
    parser.add_argument("--rounds", type=int, default=5, help="of an experiment in parts, how often each variant runs")
    arguments = parser.parse_args()
    output = arguments.dir / "reports"
    output.mkdir(parents=True, exist_ok=True)
    if arguments.experiment in IN_PARTS:
        experiment = IN_PARTS[arguments.experiment]
        if not arguments.draw_only:
            experiment.run(arguments.dir / "data", output, arguments.part, arguments.rounds)
        for part in [arguments.part] if arguments.part else experiment.PARTS:
            pictures.draw(f"{arguments.experiment}-{part}", output, arguments.pictures or output)
    for name, run in EXPERIMENTS.items():
        if arguments.experiment not in (name, "all"):
            continue
        if not arguments.draw_only:
            print(f"lab: {name}", flush=True)
            data = arguments.dir / "data"
            shutil.rmtree(data, ignore_errors=True)
            # A bound that is not kept is a result, not a failure of the lab. After a failure data and logs stay.
            run(data, output)
            shutil.rmtree(data, ignore_errors=True)
        pictures.draw(name, output, arguments.pictures or output)


if __name__ == "__main__":
    main()
